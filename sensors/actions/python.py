"""The `python` action: a function of the program that uses the library. A manifest cannot name one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from pydantic import field_serializer, model_validator
from pydantic_core import PydanticCustomError

from sensors.actions.base import ActionCall, ActionContext, ActionError, SpecModel
from sensors.spec.base import FLAW, get

MAX_STATUS = 200


class PythonSpec(SpecModel):
    """Call a function."""

    function: Callable[[ActionCall], Any]

    @model_validator(mode="before")
    @classmethod
    def _only_from_python(cls, data: Any) -> Any:
        if not callable(get(data, "function")):
            raise PydanticCustomError(FLAW, "`python` is not supported in manifests yet")
        return data

    @field_serializer("function")
    def _name(self, function: Callable[[ActionCall], Any]) -> str:
        """Stands for the function in digests, so it must not depend on the process."""
        return f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__name__)}"


class PythonAction:
    """Calls the function in a worker thread. An exception is a failed attempt that may be retried.

    The function can raise `ActionError` itself to say that retrying is useless, or that nothing was sent.
    """

    Spec: ClassVar[type[SpecModel]] = PythonSpec

    def __init__(self, spec: PythonSpec, _context: ActionContext) -> None:
        self._function = spec.function

    def invoke(self, call: ActionCall) -> str:
        try:
            result = self._function(call)
        except ActionError:
            raise
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            raise ActionError(message[:MAX_STATUS], retriable=True, sent=True) from error
        return result[:MAX_STATUS] if isinstance(result, str) and result else "ok"

    def close(self) -> None:
        pass
