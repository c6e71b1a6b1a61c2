"""Commands as a user calls them: with their exit code and with what they print."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from eventbus.cli.main import main


class Answer(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Answer]

JOIN = """\
apiVersion: eventbus.dev/v1alpha1
kind: Sensor
metadata:
  name: orders
spec:
  dependencies:
    - {name: paid, eventSourceName: shop, eventName: paid}
    - {name: packed, eventSourceName: warehouse, eventName: packed}
  triggers:
    - template:
        name: ship
        conditions: paid && packed
        log: {}
"""

EVENTS = """\
{"source": "shop", "name": "paid", "id": "paid-1", "data": {"order": 1}}
{"source": "warehouse", "name": "packed", "id": "packed-1", "data": {"order": 1}}
{"source": "shop", "name": "paid", "id": "paid-2", "data": {"order": 2}}
"""


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Commands set up logging for their process, which here is that of all tests."""
    root, ours = logging.getLogger(), logging.getLogger("eventbus")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this machine's user: no broker, no slots, no defaults, no colours."""
    for variable in ("KAFKA_BOOTSTRAP_SERVERS", "EVENTBUS_NAMESPACE", "EVENTBUS_BUS", "FORCE_COLOR", "POD_NAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("EVENTBUS_DEBUG", "")  # a test that passes --debug cannot change it for others
    monkeypatch.setenv("EVENTBUS_DATA_DIR", str(tmp_path / "home"))
    monkeypatch.setenv("EVENTBUS_SLOT_DIR", str(tmp_path / "slots"))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Command:
    """Calls `eventbus` in this process."""

    def call(*arguments: str | Path) -> Answer:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        code = end.value.code
        return Answer(code if isinstance(code, int) else 0, out, err)

    return call


@pytest.fixture
def on_kafka(kafka_bootstrap_servers: str, namespace: str) -> list[str]:
    """Options for a bus of this test's own."""
    return ["--bootstrap-servers", kafka_bootstrap_servers, "--namespace", namespace]


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A manifest: ship when paid and packed."""
    file = tmp_path / "orders.yaml"
    file.write_text(JOIN)
    return file


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """Paid and packed, and paid again."""
    file = tmp_path / "events.jsonl"
    file.write_text(EVENTS)
    return file
