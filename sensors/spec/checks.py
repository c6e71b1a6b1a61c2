"""The rules of a manifest that concern more than one field.

`…_flaws` look at data that may still be wrong in any way, and judge only what is clear: a mistake in one place must
not cause complaints about another. `spec_warnings` looks at a manifest that is valid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import product
from typing import TYPE_CHECKING, Any

from eventbus.errors import ConfigError
from eventbus.names import BusName, SensorName
from sensors.actions import ACTIONS
from sensors.actions.patched import PatchableSpec
from sensors.conditions import ConditionError, parse
from sensors.parameters import FAILURE
from sensors.scripts import check_script
from sensors.spec.base import Flaw, Path, entries, get
from sensors.spec.fields import is_kubernetes_name
from sensors.spec.joins import name_flaws
from sensors.spec.suggestions import suggest

if TYPE_CHECKING:
    from sensors.spec.models import SensorSpec, TriggerBase


def template_flaws(template: Any, not_yet: AbstractSet[str]) -> Iterator[Flaw]:
    """A trigger has exactly one action, and what that needs is installed."""
    given = [kind for kind in ACTIONS if get(template, kind) is not None]
    if len(given) > 1:
        both = _listed(given, "and")
        yield Flaw((given[1],), f"a trigger has exactly one action, and this one has {both}", about_key=True)
    for kind in given:
        lacking = ACTIONS[kind].lacking()
        if lacking is not None:
            yield Flaw((kind,), lacking, about_key=True)
    if given or not isinstance(template, Mapping) or not_yet & template.keys():
        return
    known = sorted(kind for kind, action in ACTIONS.items() if action.in_manifests)
    empty = [kind for kind in known if kind in template]
    if empty:
        message = f"`{empty[0]}` is empty; write `{empty[0]}: {{}}` for one without settings"
        yield Flaw((empty[0],), message, about_key=True)
    else:
        yield Flaw((), f"the trigger has no action; give it one of {_listed(known, 'or')}")


_SCRIPTS = (
    (("filters", "script"), "lua"),
    (("transform", "script"), "lua"),
    (("transform", "jq"), "jq"),
)


def script_flaws(dependency: Any) -> Iterator[Flaw]:
    """Scripts can be compiled, and what runs them is installed."""
    for path, language in _SCRIPTS:
        source = get(dependency, *path)
        complaint = check_script(language, source) if source and isinstance(source, str) else None
        if complaint is not None:
            yield Flaw(path, complaint.message, complaint.index)


def trigger_flaws(trigger: Any) -> Iterator[Flaw]:
    """The trigger's own parameters change its action, and only what may be changed there; its policy is about it."""
    kind = next((kind for kind in ACTIONS if get(trigger, "template", kind) is not None), None)
    for index, parameter in entries(trigger, "parameters"):
        dest = get(parameter, "dest")
        if kind is None or not isinstance(dest, str) or dest in ("", "name"):
            continue
        path = ("parameters", index, "dest")
        spec = ACTIONS[kind].spec
        if not issubclass(spec, PatchableSpec):
            yield Flaw(path, f"the action `{kind}` has nothing that parameters could change")
        elif not dest.startswith(f"{kind}.") or not spec.can_patch(dest.removeprefix(f"{kind}.")):
            known = ", ".join(f"`{kind}.{each}`" for each in spec.patchable)
            yield Flaw(path, f"`dest` cannot be `{dest}`; what parameters can change is {known}")
    if kind is not None:
        yield from _unfilled(trigger, kind)


def _unfilled(trigger: Any, kind: str) -> Iterator[Flaw]:
    """What the action cannot do without is written, or put in by a parameter."""
    spec, written = ACTIONS[kind].spec, get(trigger, "template", kind)
    if not issubclass(spec, PatchableSpec) or not isinstance(written, Mapping):
        return
    filled = {field for field, value in written.items() if value}
    filled |= {_first_step(parameter, f"{kind}.") for _, parameter in entries(trigger, "parameters")}
    if spec.patches_itself:
        filled |= {_first_step(parameter, "") for _, parameter in entries(written, "parameters")}
    for fields in spec.needed:
        if filled.isdisjoint(fields):
            message = f"`{kind}` needs {_listed(fields, 'or')}: write it, or let a parameter put it in"
            yield Flaw(("template", kind), message, about_key=True)


def _first_step(parameter: Any, prefix: str) -> str:
    return str(get(parameter, "dest")).removeprefix(prefix).partition(".")[0]


def policy_flaws(trigger: Any) -> Iterator[Flaw]:
    """There is one policy at most, and it fits the kind of the action."""
    if get(trigger, "policy") is not None and get(trigger, "template", "policy") is not None:
        yield Flaw(("template", "policy"), "the trigger has a `policy` already; leave one out", about_key=True)
    kind = next((kind for kind in ACTIONS if get(trigger, "template", kind) is not None), None)
    if kind is None:
        return
    fitting = ACTIONS[kind].policy
    hint = "it has none" if fitting is None else f"its policy is `{fitting}`"
    for place, each in product((("policy",), ("template", "policy")), ("status", "k8s")):
        if get(trigger, *place, each) is not None and each != fitting:
            yield Flaw((*place, each), f"the action `{kind}` has no policy `{each}`; {hint}", about_key=True)


def naming_flaws(manifest: Any) -> Iterator[Flaw]:
    """The names together must make topics that Kafka accepts."""
    name = get(manifest, "metadata", "name")
    namespace = get(manifest, "metadata", "namespace") or "default"
    bus = get(manifest, "spec", "eventBusName") or "default"
    if not all(isinstance(each, str) and is_kubernetes_name(each) for each in (name, namespace, bus)):
        return
    try:
        bus_name = BusName(namespace, bus)
    except ConfigError as error:
        yield Flaw(("spec", "eventBusName"), str(error))
        return
    try:
        SensorName(bus_name, name)
    except ConfigError as error:
        yield Flaw(("metadata", "name"), str(error))


def spec_flaws(spec: Any) -> Iterator[Flaw]:
    """Names are unique, and every reference to a dependency finds it."""
    dependencies = [get(dependency, "name") for _, dependency in entries(spec, "dependencies")]
    triggers = [get(trigger, "template", "name") for _, trigger in entries(spec, "triggers")]
    for index in _repeated(dependencies):
        yield Flaw(("dependencies", index, "name"), f"two dependencies are named `{dependencies[index]}`")
    for index in _repeated(triggers):
        yield Flaw(("triggers", index, "template", "name"), f"two triggers are named `{triggers[index]}`")
    names = [name for name in dependencies if isinstance(name, str)]
    if not names or len(names) < len(dependencies):
        return  # a dependency without a usable name: what refers to it is not to blame
    for index, trigger in entries(spec, "triggers"):
        template = get(trigger, "template")
        yield from _condition_flaws(template, names, ("triggers", index, "template"))
        for path, parameter in _parameters(trigger, ("triggers", index)):
            yield from _source_flaws(parameter, names, path)
        for path, parameter in _parameters(get(trigger, "dlqTrigger"), ("triggers", index, "dlqTrigger")):
            yield from _source_flaws(parameter, [*names, FAILURE], path)


def _condition_flaws(template: Any, names: Collection[str], path: Path) -> Iterator[Flaw]:
    text = get(template, "conditions") or ""
    if not isinstance(text, str):
        return
    try:
        condition = parse(text, names)
    except ConditionError as error:
        yield Flaw((*path, "conditions"), error.message, error.column - 1)
    else:
        yield from name_flaws(template, condition.names, path)


def _parameters(trigger: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Every parameter of a trigger, wherever it is, and its place."""
    owners = [(path, trigger), *((((*path, "template", kind), get(trigger, "template", kind))) for kind in ACTIONS)]
    for place, owner in owners:
        for field in ("parameters", "payload", "dynamicHeaders"):
            for index, parameter in entries(owner, field):
                yield (*place, field, index), parameter


def _source_flaws(parameter: Any, names: Collection[str], path: Path) -> Iterator[Flaw]:
    name = get(parameter, "src", "dependencyName")
    if name == FAILURE and name not in names:
        message = f"`{FAILURE}` is why an action was given up, and only a `dlqTrigger` gets it"
        yield Flaw((*path, "src", "dependencyName"), message)
    elif isinstance(name, str) and name not in names:
        yield Flaw((*path, "src", "dependencyName"), f"there is no dependency `{name}`; {suggest(name, names)}")


def spec_warnings(spec: SensorSpec) -> Iterator[Flaw]:
    """What is allowed, but does nothing."""
    used = frozenset().union(*(condition.names for condition in spec.conditions.values()))
    for index, dependency in enumerate(spec.dependencies):
        if dependency.name not in used:
            yield Flaw(("dependencies", index, "name"), f"no trigger uses the dependency `{dependency.name}`")
    if spec.errorOnFailedRound:
        yield Flaw(("errorOnFailedRound",), "this does nothing, as in argo-events: a sensor goes on after a failure")
    for index, trigger in enumerate(spec.triggers):
        names = spec.conditions[trigger.name].names
        yield from _trigger_warnings(trigger, names, ("triggers", index))
        if trigger.dlqTrigger is not None:
            yield from _trigger_warnings(trigger.dlqTrigger, names | {FAILURE}, ("triggers", index, "dlqTrigger"))
            if trigger.dlqTrigger.template.conditions:
                message = "these conditions do nothing: a `dlqTrigger` is invoked when its trigger's action is given up"
                yield Flaw(("triggers", index, "dlqTrigger", "template", "conditions"), message)


def _trigger_warnings(trigger: TriggerBase, names: Collection[str], path: Path) -> Iterator[Flaw]:
    for place, parameter in _parameters(trigger, path):
        source = parameter.src
        if source.dependencyName not in names and source.value is None:
            reason = f"`{source.dependencyName}` is not in the trigger's conditions"
            yield Flaw((*place, "src", "dependencyName"), f"this parameter is always left out: {reason}")
        if place[: len(path) + 1] == (*path, "parameters") and parameter.dest == "name":
            message = "this parameter changes nothing: records and metrics need the trigger's own name"
            yield Flaw((*place, "dest"), message)
    kind, action = trigger.template.action
    for flaw in action.warnings() if isinstance(action, PatchableSpec) else ():
        yield Flaw((*path, "template", kind, *flaw.path), flaw.message)


def _repeated(names: list[Any]) -> Iterator[int]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if isinstance(name, str):
            if name in seen:
                yield index
            seen.add(name)


def _listed(names: Collection[str], conjunction: str) -> str:
    quoted = [f"`{name}`" for name in names]
    return f"{', '.join(quoted[:-1])} {conjunction} {quoted[-1]}" if len(quoted) > 1 else quoted[0]
