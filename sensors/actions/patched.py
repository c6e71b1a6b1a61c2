"""Specs that `parameters` can change for each call. Without parameters this costs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import Field, ValidationError

from sensors.actions.base import ActionCall, ActionError
from sensors.parameters import ParameterError, Parameters, step_keys
from sensors.patching import apply_parameters
from sensors.spec.base import Flaw, SpecModel, entries, get
from sensors.spec.messages import translate


class PatchableSpec(SpecModel):
    """What a manifest says about an action whose details may depend on the events."""

    patchable: ClassVar[tuple[str, ...]] = ()
    """The destinations a parameter may have; `*` is any step, `**` any steps. An event never chooses secrets, nor a
    template."""

    patches_itself: ClassVar[bool] = True
    """Whether `parameters` change these fields, and not something else that the action works with."""
    needed: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Fields that are optional only because a parameter may put them in; of each tuple one is enough."""

    parameters: Parameters = Field(default=())
    """Values of events that are put into these fields before every call."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        for index, parameter in entries(data, "parameters"):
            dest = get(parameter, "dest")
            if isinstance(dest, str) and dest and not cls.can_patch(dest):
                known = ", ".join(f"`{each}`" for each in cls.patchable)
                message = f"`dest` cannot be `{dest}`; what parameters can change is {known}"
                yield Flaw(("parameters", index, "dest"), message)

    @property
    def patches(self) -> Parameters:
        """The parameters that change this spec."""
        return self.parameters

    def patched_by(self, parameters: Parameters) -> Self:
        """A copy that the trigger's own parameters change first; their `dest` is a field of this spec."""
        return self.model_copy(update={"parameters": (*parameters, *self.parameters)})

    def warnings(self) -> Iterator[Flaw]:
        """What is allowed in a manifest, but cannot work."""
        return iter(())

    @classmethod
    def can_patch(cls, dest: str) -> bool:
        try:
            keys = step_keys(dest)
        except ValueError:
            return True  # which is a mistake of its own
        return any(_fits(keys, pattern.split(".")) for pattern in cls.patchable)

    def check_filled(self) -> None:
        """Raises `ParameterError` when the parameters have left something empty that is needed."""
        for fields in self.needed:
            if not any(getattr(self, field) for field in fields):
                raise ParameterError(f"{' and '.join(f'`{field}`' for field in fields)} would be empty")


def _fits(keys: Sequence[str], pattern: Sequence[str]) -> bool:
    if pattern[-1] == "**":
        return len(keys) >= len(pattern) and _fits(keys[: len(pattern) - 1], pattern[:-1])
    return len(keys) == len(pattern) and all(want in ("*", key) for key, want in zip(keys, pattern, strict=True))


def keep_secrets(meant: tuple[str, str], led_to: tuple[str, str]) -> None:
    """Parameters must not send the trigger's secrets elsewhere. A place is a protocol and an address."""
    if led_to != meant:
        message = f"the parameters lead to {led_to[1]}, which must not get the secrets of the trigger"
        raise ActionError(message, retriable=False, sent=False)


Spec = TypeVar("Spec", bound=PatchableSpec)


class Patch(Generic[Spec]):
    """Makes the spec of each call."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._document = spec.model_dump(mode="json", exclude={"parameters"}) if spec.patches else None

    def spec(self, call: ActionCall) -> Spec:
        """Raises `ActionError` when the events make something of it that no manifest could say."""
        if self._document is None:
            return self._spec
        model = type(self._spec)
        try:
            spec = model.model_validate(apply_parameters(self._document, self._spec.patches, call.events))
            spec.check_filled()
        except ParameterError as error:
            reason = str(error)
        except ValidationError as error:
            reason = "; ".join(flaw.message for flaw in translate(error, model, lambda _: None))
        else:
            return spec
        raise ActionError(f"the parameters cannot be applied: {reason}", retriable=False, sent=False)
