"""Pages are short, their links lead somewhere, and their Python is true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import eventbus
import eventsources
import sensors
from eventbus import BusName, Event
from eventsources.spec import EVENT_SOURCES
from sensors.explain import Explainer
from sensors.sensor import Sensor
from sensors.spec.loader import load_text
from tests.docs.pages import ROOT, Block, anchors, blocks, links, pages

LIMITS = {
    "README.md": 150,
    "docs/tutorial.md": 200,
    "docs/command-line.md": 275,
    "docs/compatibility.md": 350,
    "docs/configuration.md": 900,
    "docs/configuration-eventsource.md": 1200,
}
README = ROOT / "README.md"


@pytest.fixture(autouse=True)
def _own_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTBUS_SLOT_DIR", str(tmp_path))
    monkeypatch.chdir(ROOT)


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_pages_are_short(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= LIMITS.get(_name(page), 250)


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        if target.startswith(("https:", "http:")):
            continue
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(link)
    assert broken == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, found = {README}, [README]
    while found:
        page = found.pop()
        for link in links(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.exists() and target not in reached:
                reached.add(target)
                found.append(target)
    assert set(pages()) - reached == set()


# --- Python ---------------------------------------------------------------------------------------------------------


def _documented(package: ModuleType) -> Iterator[str]:
    """Modules of a package that have examples."""
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        path = ROOT / (info.name.replace(".", "/") + ("/__init__.py" if info.ispkg else ".py"))
        examples = [line for line in path.read_text().splitlines() if line.lstrip().startswith(">>> ")]
        if any("+SKIP" not in example for example in examples):
            yield info.name


@pytest.mark.parametrize(
    "name", ["eventbus", "sensors", *_documented(eventbus), *_documented(sensors), *_documented(eventsources)]
)
def test_examples_in_docstrings_are_true(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.FAIL_FAST)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    "page", [page for page in pages() if any(">>> " in block.text for block in blocks(page))], ids=_name
)
def test_examples_on_pages_are_true(page: Path) -> None:
    """All examples of a page run one after the other, as a reader would type them."""
    parser, names = doctest.DocTestParser(), dict[str, object]()
    runner = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST)
    for block in blocks(page):
        if ">>> " in block.text:
            test = parser.get_doctest(block.text, {}, page.name, str(page), block.line - 1)
            test.globs = names
            runner.run(test, clear_globs=False)
    assert runner.failures == 0
    assert runner.tries > 0


@pytest.mark.parametrize(
    ("page", "block"),
    [
        pytest.param(page, block, id=f"{page.name}:{block.line}")
        for page in pages()
        for block in blocks(page)
        if block.info == "yaml" and "kind: EventSource" in block.text
    ],
)
def test_event_sources_on_pages_are_valid(page: Path, block: Block) -> None:
    [manifest] = EVENT_SOURCES.load_text(block.text, str(page))
    assert manifest.warnings == ()


# --- README ---------------------------------------------------------------------------------------------------------


def _readme_block(info: str) -> str:
    [text] = [block.text for block in blocks(README) if block.info == info]
    return text


def test_the_readmes_library_use_works(capsys: pytest.CaptureFixture[str]) -> None:
    program = _readme_block("python")
    assert len(program.splitlines()) <= 15
    exec(compile(program, "README.md", "exec"), {})  # noqa: S102 - our own page
    comments = [line.partition("# prints: ")[2] for line in program.splitlines() if "# prints: " in line]
    assert comments
    assert capsys.readouterr().out.splitlines() == comments


def test_the_readmes_sensor_fires_when_both_events_are_there() -> None:
    manifest = _readme_block("yaml")
    assert len(manifest.splitlines()) <= 20
    sensor = Sensor.of(load_text(manifest, "README.md")[0])
    assert sensor.manifest.warnings == ()
    explainer = Explainer(sensor.blueprint(BusName()).plan)
    fired = [
        explainer.feed(Event.new(dependency.eventSourceName, dependency.eventName)).fired
        for dependency in sensor.manifest.spec.dependencies
    ]
    assert [len(each) for each in fired] == [0, 1]
