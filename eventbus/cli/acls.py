"""`eventbus acls`: the least that Kafka must permit."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from eventbus.cli.options import BusFile, BusOption, Manifests, Namespace
from eventbus.cli.printing import print_table, say, say_json

if TYPE_CHECKING:
    from sensors.acls import Need, Part, Permission

_COLUMNS = ["sensor", "part", "resource", "name", "pattern", "operation"]


class AclOutput(StrEnum):
    """How permissions are printed."""

    TEXT = "text"
    JSON = "json"
    COMMANDS = "commands"


def acls(
    files: Manifests,
    *,
    principal: Annotated[str, typer.Option(metavar="TYPE:NAME", help="Whom to permit it.")] = "User:eventbus",
    part: Annotated[
        list[str] | None,
        typer.Option(metavar="PART", help="Only what this part needs; may be repeated.", show_default="all parts"),
    ] = None,
    bus_file: BusFile = None,  # noqa: ARG001 - it has named the bus
    namespace: Namespace = "default",
    bus: BusOption = "default",
    output: Annotated[
        AclOutput, typer.Option("--output", "-o", help="`json` is for programs, `commands` for a shell.")
    ] = AclOutput.TEXT,
) -> None:
    """Print the Kafka ACLs that sensors need, part by part, and no more than that. Works offline."""
    from eventbus.cli.manifests import load_sensors
    from eventbus.names import BusName
    from sensors.acls import needs_of

    parts = _parts(part)
    needed = [
        (str(loaded.name), need)
        for loaded in load_sensors(files, BusName(namespace, bus))
        for need in needs_of(loaded.name, loaded.manifest)
        if need.part in parts
    ]
    if output is AclOutput.JSON:
        say_json({"principal": principal, "acls": [_entry(sensor, need) for sensor, need in needed]})
    elif output is AclOutput.COMMANDS:
        for command in _commands(principal, (need.permission for _, need in needed)):
            say(command)
    else:
        print_table(_COLUMNS, [list(_entry(sensor, need).values()) for sensor, need in needed])


def _parts(names: Sequence[str] | None) -> frozenset[Part]:
    from eventbus.errors import ConfigError
    from sensors.acls import Part

    known = [str(each) for each in Part]
    for name in names or ():
        if name not in known:
            raise ConfigError(f"--part cannot be `{name}`; it is one of {', '.join(known)}")
    return frozenset(map(Part, names or known))


def _entry(sensor: str, need: Need) -> dict[str, str]:
    permission = need.permission
    pattern = "prefixed" if permission.prefixed else "literal"
    values = (sensor, need.part, permission.resource, permission.name, pattern, permission.operation)
    return dict(zip(_COLUMNS, map(str, values), strict=True))


def _commands(principal: str, permissions: Iterable[Permission]) -> Iterator[str]:
    """One for each resource. The shell puts in the brokers."""

    def about(permission: Permission) -> tuple[str, str, bool]:
        return permission.resource, permission.name, permission.prefixed

    for (resource, name, prefixed), same in groupby(sorted(set(permissions), key=about), about):
        words = ["--add", "--allow-principal", principal]
        for operation in sorted(each.operation for each in same):
            words += ["--operation", operation]
        words += [f"--{resource}", name, *(["--resource-pattern-type", "prefixed"] if prefixed else [])]
        yield f'kafka-acls.sh --bootstrap-server "$KAFKA_BOOTSTRAP_SERVERS" {shlex.join(words)}'
