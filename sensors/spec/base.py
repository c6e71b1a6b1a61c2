"""The base of every part of a manifest, the actions' specs included.

Pydantic checks fields one by one and stops before rules that span several of them. A `SpecModel` states such rules
in `flaws`, which looks at the data as it was given, valid or not; both kinds of errors are then reported together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import msgspec
from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

FLAW = "flaw"
"""The type of pydantic errors that carry a complete message of ours."""

Path: TypeAlias = tuple[str | int, ...]


class Flaw(msgspec.Struct, frozen=True):
    """A broken rule: where (relative to the model that states the rule) and what."""

    path: Path
    message: str
    index: int | None = None
    """Which character of the text at `path` it is about, counted from 0."""
    about_key: bool = False
    """Whether it is about the name of the field at `path`, and not about its value."""

    @classmethod
    def of(cls, error: Mapping[str, Any]) -> Flaw:
        """The flaw in one of pydantic's error dictionaries of type `FLAW`."""
        context = error.get("ctx", {})
        return cls(error["loc"], error["msg"], context.get("index"), context.get("about_key", False))

    def details(self) -> InitErrorDetails:
        return InitErrorDetails(type=self.error(), loc=self.path, input=None)

    def error(self) -> PydanticCustomError:
        """For the validator of a single field, which raises it; the path is that of the field then."""
        context = {"message": self.message, "index": self.index, "about_key": self.about_key}
        return PydanticCustomError(FLAW, "{message}", context)


class SpecModel(BaseModel):
    """A part of a manifest: argo's camelCase names are the field names, unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    not_yet: ClassVar[frozenset[str]] = frozenset()
    """Fields that argo-events has here and we refuse, so that nobody relies on something that does nothing."""
    refused: ClassVar[Mapping[str, str]] = {}
    """Fields that are known, but not possible here, each with a sentence that says why and what to do."""
    hidden: ClassVar[frozenset[str]] = frozenset()
    """Fields that nobody writes by hand, and that are therefore never suggested."""

    @classmethod
    def flaws(cls, data: Any) -> Iterable[Flaw]:  # noqa: ARG003 - for overriding
        """The rules between fields that this data breaks. `data` may be anything; judge only what has its shape."""
        return ()

    @model_validator(mode="wrap")
    @classmethod
    def _report_flaws(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        details = [flaw.details() for flaw in cls.flaws(data)]
        if not details:
            return handler(data)
        try:
            handler(data)
        except ValidationError as error:
            details += [_details_of(each) for each in error.errors(include_url=False)]
        raise ValidationError.from_exception_data(cls.__name__, details)


def _details_of(error: Mapping[str, Any]) -> InitErrorDetails:
    if error["type"] == FLAW:
        return Flaw.of(error).details()
    return InitErrorDetails(type=error["type"], loc=error["loc"], input=error["input"], ctx=error.get("ctx", {}))


def get(data: Any, *names: str) -> Any:
    """A nested field of a mapping or a model; None where anything on the way is not there."""
    for name in names:
        data = data.get(name) if isinstance(data, Mapping) else getattr(data, name, None)
    return data


def entries(data: Any, name: str) -> Iterator[tuple[int, Any]]:
    """The numbered items of a list field; none where it is not a list."""
    items = get(data, name)
    return enumerate(items) if isinstance(items, Sequence) and not isinstance(items, str) else iter(())
