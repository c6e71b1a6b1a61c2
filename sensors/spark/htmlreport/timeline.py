"""When it happened. Pictures stretch to any width because no text is in them: that stands beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import sqrt
from xml.etree.ElementTree import Element

from eventbus.moments import exactly
from sensors.spark.htmlreport.hours import DAY, HOUR, Lane, Timeline, timeline
from sensors.spark.htmlreport.markup import add, axis, card, tag, tooltip
from sensors.spark.report import AuditReport, Notice

_HEIGHT = 100
_DEPTH = 22
"""How much of it is below the line, where dead letters are."""
_DENSE = 100
"""With so many columns there is no space between them."""


def timeline_card(report: AuditReport) -> Element | None:
    """Firings by hour, all together and by trigger; nothing if there were none."""
    times = timeline(report.hours)
    if times is None:
        return None
    deep = any(hour.dead_lettered for hour in report.hours)
    content = [
        add(_legend(report, deep=deep), _peak(times)),
        tag("div", _picture(times, times.total, deep=deep), kind="panel"),
        axis(times.ticks()),
    ]
    lanes = tag("div", kind="lanes")
    broken = Counter(violation.trigger for violation in report.violations)
    if len(times.lanes) > 1:
        lanes.extend(_lane(times, lane, broken, deep=deep) for lane in times.lanes)
    for label, notices in (("at most once: lost", report.given_up), ("at least once: repeated", report.repeated)):
        if notices:
            lanes.append(_notices_lane(times, label, notices))
    if len(lanes):
        content += [lanes, axis(times.ticks(), kind="beside")]
    return card("Timeline", *content, note=f"per {_per(times.step)}, times in UTC", kind="wide")


def _legend(report: AuditReport, *, deep: bool) -> Element:
    legend = tag("p", _key("fired", "fired"), _key("succeeded", "succeeded"), kind="legend")
    if deep:
        add(legend, _key("dead", "dead letters"))
    if report.given_up or report.repeated:
        add(legend, _key("notice", "lost or repeated as the mode allows"))
    return legend


def _key(kind: str, text: str) -> Element:
    return tag("span", tag("i", kind=f"key {kind}"), text)


def _peak(times: Timeline) -> Element:
    return tag("span", f"peak {times.total.peak:,} per {_per(times.step)}", kind="peak")


def _lane(times: Timeline, lane: Lane, broken: Mapping[str, int], *, deep: bool) -> Element:
    count = sum(broken[trigger] for trigger in lane.triggers)
    name = tag("span", tag("b", lane.name, title=lane.name), kind="name")
    if count:
        add(name, tag("em", f"{count:,} broken"))
    total = tag("span", sum(lane.fired.values()), kind="total")
    return tag("div", name, _picture(times, lane, deep=deep), total, kind="lane")


def _picture(times: Timeline, lane: Lane, *, deep: bool) -> Element:
    ground = _HEIGHT - _DEPTH if deep else _HEIGHT
    picture = _canvas(times, f"{lane.name}: {sum(lane.fired.values()):,} fired")
    worst = max(lane.dead_lettered.values(), default=0)
    for column in sorted(lane.fired):
        group = tag("g", tooltip(*_told(times, lane, column)), _box("hit", times, column, 0, _HEIGHT, whole=True))
        fired = lane.fired[column]
        if fired:
            height = max(ground * fired / lane.peak, 1.5)
            add(group, _box("fired", times, column, ground - height, height))
        dead = lane.dead_lettered[column]
        if dead:
            depth = (_DEPTH - 3) * (0.4 + 0.6 * sqrt(dead / worst))
            add(group, _box("dead", times, column, ground + 3, depth))
        picture.append(group)
    picture.append(_succeeded(times, lane, ground))
    return picture


def _succeeded(times: Timeline, lane: Lane, ground: int) -> Element:
    """A line in steps: where it is below the bars, work piles up."""
    path, height = f"M0,{ground}", None
    for column in range(times.columns):
        top = ground - ground * lane.succeeded[column] / max(lane.peak, 1)
        if top != height:
            path += f"H{column}V{top:.4g}"
            height = top
    return tag("path", kind="succeeded", d=f"{path}H{times.columns}")


def _notices_lane(times: Timeline, label: str, notices: Iterable[Notice]) -> Element:
    """Single cases, where they ended."""
    cases: Counter[int] = Counter()
    total = 0
    for notice in notices:
        total += 1
        column = times.column(notice.times[-1]) if notice.times else None
        if column is not None:
            cases[column] += 1
    picture = _canvas(times, f"{label}: {total:,}")
    for column, count in sorted(cases.items()):
        box = _box("notice", times, column, 10, _HEIGHT - 20)
        picture.append(tag("g", tooltip(_period(times, column), f"{label} {count:,}"), box))
    name = tag("span", tag("b", label, title=label), kind="name")
    return tag("div", name, picture, tag("span", total, kind="total"), kind="lane notices")


def _canvas(times: Timeline, label: str) -> Element:
    size = {"viewBox": f"0 0 {times.columns} {_HEIGHT}", "preserveAspectRatio": "none"}
    return tag("svg", role="img", aria_label=label, **size)


def _box(kind: str, times: Timeline, column: int, top: float, height: float, *, whole: bool = False) -> Element:
    gap = 0 if whole or times.columns > _DENSE else 0.09
    place = {"x": f"{column + gap:g}", "y": f"{top:.4g}", "width": f"{1 - 2 * gap:g}", "height": f"{height:.4g}"}
    return tag("rect", kind=kind, **place)


def _told(times: Timeline, lane: Lane, column: int) -> list[str]:
    dead = lane.dead_lettered[column]
    return [
        lane.name,
        _period(times, column),
        f"fired {lane.fired[column]:,}",
        f"succeeded {lane.succeeded[column]:,}",
        *([f"dead letters {dead:,}"] if dead else []),
    ]


def _period(times: Timeline, column: int) -> str:
    return f"{exactly(times.began(column))[:16].replace('T', ' ')}, {_per(times.step)}"


def _per(step: int) -> str:
    number, unit = (step // DAY, "day") if step % DAY == 0 else (step // HOUR, "hour")
    return unit if number == 1 else f"{number} {unit}s"
