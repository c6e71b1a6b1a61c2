"""Event sources that other packages bring along: they work like our own, and a broken one stops only who uses it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eventsources.sources import PLUGINS, SOURCES
from eventsources.spec import EventSourceSpecBase
from tests.plugins import InstallPlugin, put_package, run_python, validate

COUNTING = """
    from eventsources.base import SourceSpec
    from eventsources.sources import SourceKind
    from sensors.spec.fields import CountFromOne

    class CountingSpec(SourceSpec):
        upTo: CountFromOne

    class CountingSource:
        def __init__(self, spec):
            self._spec = spec

        def run(self, context, stop):
            last = int(context.remembered or 0)
            for number in range(last + 1, self._spec.upTo + 1):
                context.deliver([context.identity.event(str(number), {"number": number})], str(number).encode())
            stop.wait()

    kind = SourceKind(CountingSpec, CountingSource, once=True)

    class AlikeKind:
        spec = CountingSpec
        make = CountingSource
        once = True

    class Nothing:
        spec = CountingSpec
        make = lambda spec: None
        once = False
"""
MANIFEST = """\
apiVersion: eventbus.dev/v1alpha1
kind: EventSource
metadata: {name: numbers}
spec:
  counting:
    number: {upTo: 3, filter: {expression: number > 1}}
"""
RUN = """
    from eventbus import Bus
    from eventsources.spec import EVENT_SOURCES
    from tests.eventsources.fetching import running, until
    from tests.eventsources.serving import events_on

    with Bus.memory() as bus:
        bus.ensure(1)
        with running(EVENT_SOURCES.load_one("source.yaml"), bus):
            until(lambda: len(events_on(bus)) == 2)
        print([(event.source, event.subject, event.type, event.id) for event in events_on(bus)])
"""
NO_KIND = "has no `spec`, which is a SourceSpec, and `make` and `once`; see `SourceKind`"


@pytest.fixture
def install(tmp_path: Path) -> InstallPlugin:
    """Puts a package where Python finds it, as an installer would."""

    def put(entry_points: str, code: str = COUNTING, name: str = "counting_source") -> Path:
        (tmp_path / "source.yaml").write_text(MANIFEST)
        return put_package(tmp_path, "eventbus.sources", entry_points, code, name)

    return put


@pytest.mark.parametrize("value", ["kind", "AlikeKind"])
def test_a_source_of_another_package_runs_like_our_own(install: InstallPlugin, value: str) -> None:
    folder = install(f"counting = counting_source:{value}")
    assert run_python(folder, RUN) == (
        "[('numbers', 'number', 'counting', '2'), ('numbers', 'number', 'counting', '3')]\n"
    )


def test_its_mistakes_have_a_place(install: InstallPlugin) -> None:
    folder = install("counting = counting_source:kind")
    (folder / "source.yaml").write_text(MANIFEST.replace("upTo: 3", "upto: 3"))
    output = run_python(folder, validate("source.yaml"))
    assert "source.yaml:6:5: `upTo` is missing" in output
    assert "source.yaml:6:14: unknown field `upto`; did you mean `upTo`?" in output


def test_a_broken_plugin_is_named_where_it_is_used(install: InstallPlugin) -> None:
    output = run_python(install("counting = counting_source:kind", "import no_such_module"), validate("source.yaml"))
    assert (
        "source.yaml:5:3: the event source `counting` of the package `counting_source` 1.2 cannot be used: " in output
    )
    assert "ModuleNotFoundError: No module named 'no_such_module'" in output
    assert "Traceback" not in output
    assert "there is no source" not in output


def test_a_broken_plugin_stops_nobody_who_does_not_use_it(install: InstallPlugin) -> None:
    folder = install("other = counting_source:kind", "raise SystemExit('bad')")
    (folder / "source.yaml").write_text(MANIFEST.partition("  counting:")[0] + "  calendar: {tick: {interval: 1h}}\n")
    output = run_python(folder, validate("source.yaml"))
    assert "bad" not in output
    assert "source.yaml: ok" in output or "1 event source" in output, output


def test_what_makes_no_source_is_told_when_it_is_to_run(install: InstallPlugin) -> None:
    output = run_python(install("counting = counting_source:Nothing"), RUN)
    assert "ConfigError: `counting` makes neither a Source nor an Endpoint with a ReceiverSpec" in output


@pytest.mark.parametrize(
    ("entry_point", "reason"),
    [
        ("counting = counting_source:nothing", "AttributeError: module 'counting_source' has no attribute 'nothing'"),
        ("counting = counting_source:CountingSource", f"`counting_source:CountingSource` {NO_KIND}"),
        ("replicas = counting_source:kind", "an EventSource cannot have a field of that name"),
        ("sources = counting_source:kind", "an EventSource cannot have a field of that name"),
        ("model_fields = counting_source:kind", "an EventSource cannot have a field of that name"),
    ],
)
def test_what_cannot_be_a_source_is_refused_with_a_reason(
    install: InstallPlugin, monkeypatch: pytest.MonkeyPatch, entry_point: str, reason: str
) -> None:
    monkeypatch.syspath_prepend(install(entry_point))
    monkeypatch.delitem(sys.modules, "counting_source", raising=False)
    kinds, refused = PLUGINS.load(SOURCES)
    name = entry_point.partition(" ")[0]
    assert kinds == {}
    told = f"the event source `{name}` of the package `counting_source` 1.2 cannot be used: {reason}"
    assert refused == {name: told}


def test_what_is_built_in_stays_what_it_is(
    install: InstallPlugin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.syspath_prepend(install("webhook = counting_source:kind"))
    assert PLUGINS.load(SOURCES) == ({}, {})
    told = "the event source `webhook` of the package `counting_source` 1.2 is not used: it is built in"
    assert caplog.messages == [told]


def test_a_plugin_may_bring_what_we_refuse(install: InstallPlugin) -> None:
    folder = install("pulsar = counting_source:kind")
    code = "from eventsources.sources import REFUSED, SOURCES; print('pulsar' in SOURCES, 'pulsar' in REFUSED)"
    assert run_python(folder, code) == "True False\n"


def test_no_plugin_can_take_the_place_of_something_else() -> None:
    own = {name for name in vars(EventSourceSpecBase) if not name.startswith("_")} | {*EventSourceSpecBase.model_fields}
    assert own | EventSourceSpecBase.not_yet <= PLUGINS.taken.union(dir(EventSourceSpecBase.__base__))
