"""Actions that other packages bring along: they work like our own, and a broken one stops only who uses it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sensors.actions import ACTIONS, PLUGINS
from tests.plugins import InstallPlugin, put_package, run_python, validate

SHOUT = """
    from sensors.actions import ActionKind
    from sensors.actions.base import SpecModel
    from sensors.spec.fields import Text

    class ShoutSpec(SpecModel):
        text: Text

    class Shout:
        Spec = ShoutSpec

        def __init__(self, spec, context):
            self._spec = spec

        def invoke(self, call):
            return self._spec.text.upper()

        def close(self):
            pass

    kind = ActionKind(ShoutSpec, Shout)

    class AlikeKind:
        spec = ShoutSpec
        make = Shout
"""
MANIFEST = """\
apiVersion: argoproj.io/v1alpha1
kind: Sensor
metadata: {name: s}
spec:
  dependencies: [{name: a, eventSourceName: s, eventName: n}]
  triggers:
    - template:
        name: t
        shout: {text: hi}
"""
NO_KIND = "has no `spec`, which is a SpecModel, and `make`; see `ActionKind`"


@pytest.fixture
def install(tmp_path: Path) -> InstallPlugin:
    """Puts a package where Python finds it, as an installer would."""

    def put(entry_points: str, code: str = SHOUT, name: str = "shouting") -> Path:
        return put_package(tmp_path, "eventbus.actions", entry_points, code, name)

    return put


def _run(folder: Path, code: str) -> str:
    (folder / "sensor.yaml").write_text(MANIFEST)
    return run_python(folder, code)


@pytest.mark.parametrize("value", ["kind", "AlikeKind"])
def test_an_action_of_another_package_is_used_like_our_own(install: InstallPlugin, value: str) -> None:
    folder = install(f"shout = shouting:{value}")
    code = """
        from sensors.actions import make_action
        from sensors.spec.loader import load_manifest

        [trigger] = load_manifest("sensor.yaml").spec.triggers
        print(trigger.action[0], make_action(*trigger.action, None).invoke(None))
    """
    assert _run(folder, code) == "shout HI\n"


def test_its_mistakes_have_a_place(install: InstallPlugin) -> None:
    folder = install("shout = shouting:kind")
    code = """
        from pathlib import Path
        from sensors.spec.loader import load_text
        from sensors.spec.problems import ManifestError

        try:
            load_text(Path("sensor.yaml").read_text().replace("text: hi", "txet: hi"), "s.yaml")
        except ManifestError as error:
            print([(problem.line, problem.column, problem.message) for problem in error.problems])
    """
    assert _run(folder, code) == (
        "[(9, 9, '`text` is missing'), (9, 17, 'unknown field `txet`; did you mean `text`?')]\n"
    )


def test_a_broken_plugin_is_named_where_it_is_used(install: InstallPlugin) -> None:
    output = _run(install("shout = shouting:kind", "import no_such_module"), validate("sensor.yaml"))
    assert "sensor.yaml:9:9: the action `shout` of the package `shouting` 1.2 cannot be used: " in output
    assert "ModuleNotFoundError: No module named 'no_such_module'" in output
    assert "Traceback" not in output
    assert "has no action" not in output


def test_a_broken_plugin_stops_nobody_who_does_not_use_it(install: InstallPlugin) -> None:
    output = _run(install("other = shouting:kind", "raise SystemExit('bad')"), "import sensors.actions; print('fine')")
    assert output == "fine\n"


@pytest.mark.parametrize(
    ("entry_point", "reason"),
    [
        ("shout = shouting:nothing", "AttributeError: module 'shouting' has no attribute 'nothing'"),
        ("shout = shouting", f"`shouting` {NO_KIND}"),
        ("shout = shouting:Shout", f"`shouting:Shout` {NO_KIND}"),
        ("conditions = shouting:kind", "a trigger cannot have a field of that name"),
        ("model_fields = shouting:kind", "a trigger cannot have a field of that name"),
        ("my-shout = shouting:kind", "a trigger cannot have a field of that name"),
    ],
)
def test_what_cannot_be_an_action_is_refused_with_a_reason(
    install: InstallPlugin, monkeypatch: pytest.MonkeyPatch, entry_point: str, reason: str
) -> None:
    monkeypatch.syspath_prepend(install(entry_point))
    monkeypatch.delitem(sys.modules, "shouting", raising=False)
    kinds, refused = PLUGINS.load(ACTIONS)
    name = entry_point.partition(" ")[0]
    assert kinds == {}
    assert refused == {name: f"the action `{name}` of the package `shouting` 1.2 cannot be used: {reason}"}


def test_what_is_built_in_stays_what_it_is(
    install: InstallPlugin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.syspath_prepend(install("http = shouting:kind"))
    kinds, refused = PLUGINS.load(ACTIONS)
    assert kinds == {}
    assert refused == {}
    assert caplog.messages == ["the action `http` of the package `shouting` 1.2 is not used: it is built in"]


def test_two_plugins_with_one_name_are_both_refused(install: InstallPlugin, monkeypatch: pytest.MonkeyPatch) -> None:
    install("shout = shouting:kind")
    monkeypatch.syspath_prepend(install("shout = louder:kind", name="louder"))
    for module in ("shouting", "louder"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    kinds, refused = PLUGINS.load(ACTIONS)
    assert kinds == {}
    assert "another plugin has the same name" in refused["shout"]


def test_a_plugin_may_bring_what_we_refuse(install: InstallPlugin) -> None:
    folder = install("pulsar = shouting:kind")
    code = "from sensors.actions import ACTIONS, REFUSED; print('pulsar' in ACTIONS, 'pulsar' in REFUSED)"
    assert _run(folder, code) == "True False\n"
