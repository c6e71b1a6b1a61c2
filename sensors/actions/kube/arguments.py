"""The `args` of an `argoWorkflow` trigger. argo-events hands them to the `argo` command; here there is none."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

_NEW = ("submit", "submit-from")
_FLAGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "-p": ("parameters", (*_NEW, "resubmit", "retry")),
    "--parameter": ("parameters", (*_NEW, "resubmit", "retry")),
    "-l": ("labels", _NEW),
    "--labels": ("labels", _NEW),
    "--entrypoint": ("entrypoint", _NEW),
    "--name": ("name", _NEW),
    "--generate-name": ("generate_name", _NEW),
    "--serviceaccount": ("service_account", _NEW),
    "--priority": ("priority", _NEW),
}
"""Every flag that is understood: what it sets, and for which operations."""
SUPPORTED = tuple(_FLAGS)


class Arguments(msgspec.Struct):
    """What the flags ask for."""

    parameters: dict[str, str] = {}
    labels: dict[str, str] = {}
    entrypoint: str = ""
    name: str = ""
    generate_name: str = ""
    service_account: str = ""
    priority: int | None = None


def parse_arguments(words: Sequence[str], operation: str) -> Arguments:
    """Raises `ValueError` with a whole sentence."""
    found = Arguments(parameters={}, labels={})
    waiting = list(words)
    while waiting:
        flag, equals, value = waiting.pop(0).partition("=")
        field, operations = _FLAGS.get(flag, ("", ()))
        if operation not in operations:
            raise ValueError(_complaint(flag, operation))
        if not equals:
            if not waiting:
                raise ValueError(f"`{flag}` needs a value")
            value = waiting.pop(0)
        _set(found, flag, field, value)
    return found


def _complaint(flag: str, operation: str) -> str:
    known = ", ".join(f"`{name}`" for name, (_, operations) in _FLAGS.items() if operation in operations)
    return f"`{flag}` is not supported for `{operation}`, because there is no argo command here; " + (
        f"what is supported is {known}" if known else "it takes no `args`"
    )


def _set(found: Arguments, flag: str, field: str, value: str) -> None:
    if field in ("parameters", "labels"):
        for pair in value.split(",") if field == "labels" else (value,):
            name, equals, text = pair.partition("=")
            if not name or not equals:
                raise ValueError(f"`{flag} {pair}` must be `name=value`")
            getattr(found, field)[name] = text
    elif field == "priority":
        if not value.removeprefix("-").isascii() or not value.removeprefix("-").isdigit():
            raise ValueError(f"`{flag} {value}` must be a whole number")
        found.priority = int(value)
    else:
        setattr(found, field, value)
