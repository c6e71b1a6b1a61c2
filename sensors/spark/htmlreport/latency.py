"""How long it took: a histogram for every stage, and a strip for every trigger."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from eventbus.moments import span
from sensors.spark.htmlreport.markup import Column, Content, add, axis, card, folded_table, tag, tooltip
from sensors.spark.htmlreport.scale import Axis, StageLatency, stages
from sensors.spark.report import AuditReport, Latency

_WIDTH, _HEIGHT = 1000, 100
_SHOWN = 6
_COLUMNS = [
    Column("trigger"),
    Column("actions", "number"),
    *(Column(name, "number") for name in ("p50", "p90", "p99", "longest")),
    Column("p50 to p90, p99, longest", "strip"),
]


def latency_card(report: AuditReport) -> Element | None:
    """All stages, on the same scale; nothing if nothing was measured."""
    known = stages(report)
    if not known:
        return None
    scale = Axis.around([length for stage in known for length in stage.lengths()])
    return card("Latency", *(_stage(stage, scale) for stage in known), note="logarithmic scale", kind="wide")


def _stage(stage: StageLatency, scale: Axis) -> Element:
    marks = stage.marks()
    legend = tag("p", kind="legend")
    for name, (_, text) in marks.items():
        add(legend, tag("span", tag("i", kind=f"key {name}"), tag("b", name), f" {text}"))
    whole = tag("div", tag("h3", stage.stage, tag("small", f"{stage.count:,} actions")), legend, kind="stage")
    if stage.bins:
        add(whole, tag("div", _histogram(stage, scale), kind="panel low"), axis(scale.ticks()))
    if stage.latencies:
        by_trigger = folded_table(_COLUMNS, [_row(latency, scale) for latency in stage.latencies], _SHOWN)
        add(whole, *by_trigger)
    return whole


def _histogram(stage: StageLatency, scale: Axis) -> Element:
    picture = _canvas(f"{stage.stage}: {stage.count:,} actions")
    most = max(each.count for each in stage.bins)
    for each in stage.bins:
        left, right = _WIDTH * scale.place(each.low), _WIDTH * scale.place(each.high)
        height = max(96 * each.count / most, 1.5)
        text = f"{span(round(each.low))} to {span(round(each.high))}: {each.count:,}"
        box = _box("fired", left + 1, max(right - left - 2, 2), _HEIGHT - height, height)
        hit = _box("hit", left, max(right - left, 4), 0, _HEIGHT)
        picture.append(tag("g", tooltip(text), hit, box))
    for name, (length, text) in stage.marks().items():
        x = f"{_WIDTH * scale.place(length):.1f}"
        picture.append(tag("line", tooltip(f"{name} {text}"), kind=name, x1=x, x2=x, y1="0", y2=str(_HEIGHT)))
    return picture


def _row(latency: Latency, scale: Axis) -> Sequence[Content]:
    lengths = [latency.p50, latency.p90, latency.p99, latency.longest]
    return [latency.trigger, latency.count, *map(span, lengths), _strip(latency, scale)]


def _strip(latency: Latency, scale: Axis) -> Element:
    p50, p90, p99, longest = (
        _WIDTH * scale.place(length) for length in (latency.p50, latency.p90, latency.p99, latency.longest)
    )
    return add(
        _canvas(f"from {span(latency.p50)} to {span(latency.longest)}"),
        _box("track", 0, _WIDTH, 46, 8),
        _box("tail", p50, max(longest - p50, 4), 40, 20),
        _box("most", p50, max(p99 - p50, 6), 24, 52),
        _box("half", p50, max(p90 - p50, 8), 8, 84),
    )


def _canvas(label: str) -> Element:
    size = {"viewBox": f"0 0 {_WIDTH} {_HEIGHT}", "preserveAspectRatio": "none"}
    return tag("svg", role="img", aria_label=label, **size)


def _box(kind: str, left: float, width: float, top: float, height: float) -> Element:
    place = {"x": f"{left:.1f}", "y": f"{top:.4g}", "width": f"{width:.1f}", "height": f"{height:.4g}"}
    return tag("rect", kind=kind, **place)
