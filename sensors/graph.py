"""A sensor as a picture: dependencies, the conditions that join them, and the triggers that fire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import msgspec

from sensors.spec.fields import duration_text
from sensors.spec.joins import JoinSpec
from sensors.spec.models import SensorManifest

_MODES = {"atMostOnce": "at most once", "atLeastOnce": "at least once"}
_WIDTH, _HEIGHT, _GAP, _BETWEEN, _MARGIN = 250, 46, 14, 90, 16
_CHARACTERS = 34
"""What fits into a box; the rest is shown when the mouse is over it."""
_STYLE = """\
  text { font: 13px system-ui, sans-serif; fill: #1b1f24 }
  .note { font-size: 11px; fill: #57606a }
  rect { stroke-width: 1.5; rx: 6px }
  .dependency { fill: #ddf4ff; stroke: #0969da }
  .condition { fill: #fff8c5; stroke: #9a6700 }
  .trigger { fill: #dafbe1; stroke: #1a7f37 }
  path { fill: none; stroke: #8c959f; stroke-width: 1.3 }"""


class Node(msgspec.Struct, frozen=True):
    """A box with a title and something below it."""

    id: str
    title: str
    note: str = ""


class Graph(msgspec.Struct, frozen=True):
    """Three columns of boxes, and what leads from one to the next."""

    dependencies: Sequence[Node]
    conditions: Sequence[Node]
    triggers: Sequence[Node]
    edges: Sequence[tuple[str, str]]

    @classmethod
    def of(cls, manifest: SensorManifest) -> Graph:
        spec = manifest.spec
        dependencies = {
            dependency.name: Node(
                f"d{number}", dependency.name, f"{dependency.eventSourceName} / {dependency.eventName}"
            )
            for number, dependency in enumerate(spec.dependencies)
        }
        conditions, triggers, edges = [], [], []
        for number, trigger in enumerate(spec.triggers):
            condition = spec.conditions[trigger.name]
            conditions.append(Node(f"c{number}", str(condition), ", ".join(_rules(trigger.template))))
            triggers.append(Node(f"t{number}", trigger.name, f"{trigger.action[0]}, {_MODES[trigger.mode]}"))
            edges += [(dependencies[name].id, f"c{number}") for name in dependencies if name in condition.names]
            edges.append((f"c{number}", f"t{number}"))
        return cls(list(dependencies.values()), conditions, triggers, edges)


def _rules(spec: JoinSpec) -> Iterator[str]:
    """What is said beyond the condition."""
    if spec.correlate is not None:
        yield f"by {spec.correlate.by}" if isinstance(spec.correlate.by, str) else "by key"
    yield from (f"{count} × {name}" for name, count in sorted(spec.count.items()) if count > 1)
    for text, span in (("within", spec.within), ("once in", spec.onceWithin)):
        if span is not None:
            yield f"{text} {duration_text(span)}"
    if spec.dedupe is not None:
        yield "no repeats"
    yield from (f"reset at {reset.byTime.cron}" for reset in spec.conditionsReset)


def mermaid(graph: Graph) -> str:
    """For Markdown: GitHub and others draw it."""
    lines = ["graph LR"]
    lines += [f'  {node.id}["{_label(node)}"]' for node in graph.dependencies]
    lines += [f'  {node.id}{{{{"{_label(node)}"}}}}' for node in graph.conditions]
    lines += [f'  {node.id}(["{_label(node)}"])' for node in graph.triggers]
    lines += [f"  {left} --> {right}" for left, right in graph.edges]
    return "\n".join(lines) + "\n"


def _label(node: Node) -> str:
    """Mermaid knows entities by `#name;`, and takes nothing else for what it is."""
    texts = [text.replace("#", "#35;").replace('"', "#quot;") for text in (node.title, node.note) if text]
    return "<br/>".join(escape(text, quote=False) for text in texts)


def svg(graph: Graph) -> str:
    """A picture of its own: no font, script or file from elsewhere."""
    columns = [("dependency", graph.dependencies), ("condition", graph.conditions), ("trigger", graph.triggers)]
    rows = max(len(nodes) for _, nodes in columns)
    height = 2 * _MARGIN + rows * _HEIGHT + (rows - 1) * _GAP
    width = 2 * _MARGIN + len(columns) * _WIDTH + (len(columns) - 1) * _BETWEEN
    picture = Element("svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}")
    picture.attrib |= {"width": str(width), "height": str(height)}
    SubElement(picture, "style").text = _STYLE
    lines = SubElement(picture, "g")
    places: dict[str, tuple[float, float]] = {}
    for number, (kind, nodes) in enumerate(columns):
        left = _MARGIN + number * (_WIDTH + _BETWEEN)
        top = (height - len(nodes) * _HEIGHT - (len(nodes) - 1) * _GAP) / 2
        for row, node in enumerate(nodes):
            places[node.id] = left, top + row * (_HEIGHT + _GAP)
            _draw_box(picture, kind, node, *places[node.id])
    for start, end in graph.edges:
        _draw_line(lines, places[start], places[end])
    indent(picture)
    return tostring(picture, encoding="unicode") + "\n"


def _draw_box(picture: Element, kind: str, node: Node, left: float, top: float) -> None:
    box = SubElement(picture, "g")
    SubElement(box, "title").text = node.title
    size = {"width": str(_WIDTH), "height": str(_HEIGHT)}
    SubElement(box, "rect", {"class": kind, "x": f"{left:g}", "y": f"{top:g}", **size})
    _draw_text(box, node.title, left, top + (20 if node.note else 28), "title")
    if node.note:
        _draw_text(box, node.note, left, top + 36, "note")


def _draw_text(box: Element, text: str, left: float, base: float, kind: str) -> None:
    place = {"x": f"{left + _WIDTH / 2:g}", "y": f"{base:g}", "text-anchor": "middle"}
    shown = text if len(text) <= _CHARACTERS else f"{text[: _CHARACTERS - 1]}…"
    SubElement(box, "text", {"class": kind, **place}).text = shown


def _draw_line(lines: Element, start: tuple[float, float], end: tuple[float, float]) -> None:
    x1, y1 = start[0] + _WIDTH, start[1] + _HEIGHT / 2
    x2, y2 = end[0], end[1] + _HEIGHT / 2
    bend = (x1 + x2) / 2
    SubElement(lines, "path", d=f"M{x1:g},{y1:g} C{bend:g},{y1:g} {bend:g},{y2:g} {x2:g},{y2:g}")
