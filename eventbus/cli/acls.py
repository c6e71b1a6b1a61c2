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

_COLUMNS = ["manifest", "part", "resource", "name", "pattern", "operation"]


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
    """Print the Kafka ACLs that sensors and event sources need, part by part, and no more than that. Works offline."""
    from eventbus.cli.manifests import load_all
    from eventbus.names import BusName
    from eventsources.acls import needs_of_source
    from sensors.acls import needs_of

    parts = _parts(part)
    sensors, sources = load_all(files, BusName(namespace, bus))
    all_needs = [(str(each.name), need) for each in sensors for need in needs_of(each.name, each.manifest)]
    all_needs += [(each.manifest.name, need) for each in sources for need in needs_of_source(each.bus, each.manifest)]
    needed = [(name, need) for name, need in all_needs if need.part in parts]
    if output is AclOutput.JSON:
        say_json({"principal": principal, "acls": [_entry(name, need) for name, need in needed]})
    elif output is AclOutput.COMMANDS:
        for command in _commands(principal, (need.permission for _, need in needed)):
            say(command)
    else:
        print_table(_COLUMNS, [list(_entry(name, need).values()) for name, need in needed])


def _parts(names: Sequence[str] | None) -> frozenset[Part]:
    from eventbus.errors import ConfigError
    from sensors.acls import Part

    known = [str(each) for each in Part]
    for name in names or ():
        if name not in known:
            raise ConfigError(f"--part cannot be `{name}`; it is one of {', '.join(known)}")
    return frozenset(map(Part, names or known))


def _entry(name: str, need: Need) -> dict[str, str]:
    permission = need.permission
    pattern = "prefixed" if permission.prefixed else "literal"
    values = (name, need.part, permission.resource, permission.name, pattern, permission.operation)
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
