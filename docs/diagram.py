"""The picture of the stages. Names of stages, topics, actions and modules come from the code, only places from here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from eventbus.names import BusName, Kind, SensorName, Stage
from eventbus.ports import TopicSpec
from eventbus.topics import event_topic, sensor_topics
from sensors.actions import ACTIONS
from sensors.invoke import Invoker
from sensors.join import JoinPartition
from sensors.match import Matcher

NAME = SensorName(BusName("ns", "bus"), "sensor")

WHAT = {
    Stage.MATCH: "Which triggers want this event?",
    Stage.JOIN: "Hold events until the condition is true",
    Stage.INVOKE: "Run the action, try again, give up",
}
CORES: Mapping[Stage, type] = {Stage.MATCH: Matcher, Stage.JOIN: JoinPartition, Stage.INVOKE: Invoker}

_WIDTH, _HEIGHT = 1000, 760
_SANS = "Inter, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
_MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_STYLE = f"""
text {{ font-family: {_SANS}; font-size: 14px; fill: #1f2937; }}
.name {{ font-size: 19px; font-weight: 600; }}
.topic {{ font-family: {_MONO}; font-size: 13.5px; font-weight: 600; }}
.note {{ font-size: 12.5px; fill: #57606a; }}
.code {{ font-family: {_MONO}; font-size: 12px; fill: #57606a; }}
.page {{ fill: #ffffff; stroke: #d0d7de; }}
.sensor {{ fill: #f6f8fa; stroke: #d0d7de; stroke-dasharray: 6 5; }}
.stage {{ fill: #ddf0ff; stroke: #2f7fc4; stroke-width: 1.6; }}
.log {{ fill: #fff4d6; stroke: #b98214; stroke-width: 1.4; }}
.outside {{ fill: #ffffff; stroke: #8c959f; stroke-width: 1.4; }}
.cell {{ stroke: #e3bd6b; }}
.flow {{ fill: none; stroke: #414a55; stroke-width: 1.8; }}
.aside {{ fill: none; stroke: #8c959f; stroke-width: 1.4; stroke-dasharray: 4 4; }}
"""


class Box(NamedTuple):
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def centre(self) -> float:
        return self.y + self.height / 2


_SENSOR = Box(24, 168, 758, 570)
_SENDERS = Box(350, 20, 300, 44)
_EVENTS = Box(350, 100, 300, 44)
_STAGES = {
    Stage.MATCH: Box(350, 186, 300, 78),
    Stage.JOIN: Box(350, 372, 300, 78),
    Stage.INVOKE: Box(350, 558, 300, 78),
}
_TOPICS = {
    Kind.TRIGGER: Box(350, 298, 300, 44),
    Kind.ACTION: Box(350, 484, 300, 44),
    Kind.STATE: Box(44, 372, 260, 44),
    Kind.DLQ: Box(44, 670, 260, 44),
    Kind.INVOCATION: Box(350, 670, 300, 44),
}
_TARGETS = Box(810, 558, 166, 78)
_BYPASS = 690
_DEAD_RAIL = 326


def stages_svg() -> str:
    """The whole picture, as a file."""
    svg = Element("svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img")
    SubElement(svg, "title").text = "The stages of a sensor and the topics between them"
    SubElement(svg, "style").text = _STYLE
    _arrow_head(svg)
    _box(svg, Box(0.5, 0.5, _WIDTH - 1, _HEIGHT - 1), "page")
    _box(svg, _SENSOR, "sensor")
    _text(svg, _SENSOR.x + 16, _SENSOR.y + 26, "one sensor, any number of replicas", "note")
    _connections(svg)
    _outside(svg)
    _topics(svg)
    _stages(svg)
    indent(svg)
    return tostring(svg, encoding="unicode") + "\n"


# --- what is where --------------------------------------------------------------------------------------------------


def _outside(svg: Element) -> None:
    _box(svg, _SENDERS, "outside")
    _text(svg, _SENDERS.middle, _SENDERS.centre + 5, "anything that sends CloudEvents", anchor="middle")
    _box(svg, _TARGETS, "outside")
    _text(svg, _TARGETS.middle, _TARGETS.centre - 6, "the action", anchor="middle")
    kinds = ", ".join([*islice(ACTIONS, 3), "…"])
    _text(svg, _TARGETS.middle, _TARGETS.centre + 16, kinds, "code", anchor="middle")


def _topics(svg: Element) -> None:
    _topic(svg, _EVENTS, event_topic(NAME.bus, 1), "events")
    specs = {spec.name: spec for spec in sensor_topics(NAME, 1)}
    for kind, box in _TOPICS.items():
        _topic(svg, box, specs[NAME.topic(kind)], kind)


def _stages(svg: Element) -> None:
    for number, stage in enumerate(Stage, 1):
        box = _STAGES[stage]
        _box(svg, box, "stage")
        _text(svg, box.x + 16, box.y + 27, f"{number}  {stage}", "name")
        module = CORES[stage].__module__.replace(".", "/")
        _text(svg, box.right - 14, box.y + 26, f"{module}.py", "code", anchor="end")
        _text(svg, box.x + 16, box.y + 49, WHAT[stage])
        _text(svg, box.x + 16, box.y + 67, f"group {_pattern(NAME.group(stage))}", "code")


def _connections(svg: Element) -> None:
    match, join, invoke = (_STAGES[stage] for stage in Stage)
    _flow(svg, (_SENDERS.middle, _SENDERS.bottom), (_EVENTS.middle, _EVENTS.y))
    for stage, box in _STAGES.items():
        source = _EVENTS if stage is Stage.MATCH else _TOPICS[Kind(NAME.input_topic(stage).rpartition("-")[2])]
        _flow(svg, (source.middle, source.bottom), (box.middle, box.y))
    trigger, action, state = _TOPICS[Kind.TRIGGER], _TOPICS[Kind.ACTION], _TOPICS[Kind.STATE]
    _flow(svg, (match.middle, match.bottom), (trigger.middle, trigger.y))
    _text(svg, match.middle + 10, match.bottom + 21, "several are needed", "note")
    _flow(svg, (join.middle, join.bottom), (action.middle, action.y))
    _text(svg, join.middle + 10, join.bottom + 21, "all their events together", "note")
    _flow(
        svg,
        (match.right, match.centre),
        (_BYPASS, match.centre),
        (_BYPASS, action.centre),
        (action.right, action.centre),
    )
    _text(svg, _BYPASS + 10, trigger.y + 18, "one event", "note")
    _text(svg, _BYPASS + 10, trigger.y + 35, "is enough", "note")
    _line(svg, "flow", (join.x, state.centre), (state.right, state.centre), head=True, tail=True)
    _text(svg, state.x, state.bottom + 18, "what is held for long; who owns it", "note")
    _flow(svg, (invoke.right, invoke.centre), (_TARGETS.x, invoke.centre))
    invocation, dlq = _TOPICS[Kind.INVOCATION], _TOPICS[Kind.DLQ]
    _flow(svg, (invoke.middle, invoke.bottom), (invocation.middle, invocation.y))
    _text(svg, invoke.middle + 10, invoke.bottom + 21, "every attempt", "note")
    for box in (join, invoke):
        _line(svg, "aside", (box.x, box.bottom - 16), (_DEAD_RAIL, box.bottom - 16))
    first = match.bottom - 16
    _line(
        svg,
        "aside",
        (match.x, first),
        (_DEAD_RAIL, first),
        (_DEAD_RAIL, dlq.centre),
        (dlq.right, dlq.centre),
        head=True,
    )
    _text(svg, dlq.x, dlq.y - 10, "what could not be used", "note")


# --- shapes ---------------------------------------------------------------------------------------------------------


def _topic(svg: Element, box: Box, spec: TopicSpec, what: str) -> None:
    """A log: the end of it is open, with the last records."""
    _box(svg, box, "log")
    for step in range(1, 4):
        x = box.right - 13 * step
        SubElement(svg, "line", {"class": "cell"}, **_numbers(x1=x, y1=box.y + 1, x2=x, y2=box.bottom - 1))
    _text(svg, box.x + 12, box.y + 19, what, "topic")
    _text(svg, box.x + 12, box.y + 36, _pattern(spec.name), "code")
    _text(svg, box.right - 46, box.y + 19, _kept(spec.config), "note", anchor="end")


def _kept(config: Mapping[str, str]) -> str:
    if config["cleanup.policy"] == "compact":
        return "compacted"
    return f"{int(config['retention.ms']) // 86_400_000} days"


def _pattern(name: str) -> str:
    """`ns-bus-sensor-trigger` as a pattern."""
    known = {"ns", "bus", "sensor"}
    return "-".join(f"{{{part}}}" if part in known else part for part in name.split("-"))


def _box(svg: Element, box: Box, kind: str) -> None:
    SubElement(svg, "rect", {"class": kind, "rx": "8"}, **_numbers(**box._asdict()))


def _text(svg: Element, x: float, y: float, text: str, kind: str = "", *, anchor: str = "start") -> None:
    attributes = ({"class": kind} if kind else {}) | ({} if anchor == "start" else {"text-anchor": anchor})
    SubElement(svg, "text", attributes, **_numbers(x=x, y=y)).text = text


def _flow(svg: Element, *points: tuple[float, float]) -> None:
    _line(svg, "flow", *points, head=True)


def _line(svg: Element, kind: str, *points: tuple[float, float], head: bool = False, tail: bool = False) -> None:
    ends = {"marker-end": head, "marker-start": tail}
    markers = {name: "url(#head)" for name, wanted in ends.items() if wanted}
    SubElement(svg, "polyline", {"class": kind, "points": _path(points), **markers})


def _path(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def _arrow_head(svg: Element) -> None:
    size = {"markerWidth": "9", "markerHeight": "9", "refX": "8", "refY": "4.5", "markerUnits": "userSpaceOnUse"}
    marker = SubElement(SubElement(svg, "defs"), "marker", {"id": "head", "orient": "auto-start-reverse", **size})
    SubElement(marker, "path", d="M0,0 L9,4.5 L0,9 z", fill="#414a55")


def _numbers(**attributes: float) -> dict[str, str]:
    return {name: f"{value:g}" for name, value in attributes.items()}
