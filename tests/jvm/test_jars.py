"""Jars are fetched once, completely, and exactly as pinned. A small Maven repository here plays the other side."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from eventbus.broker.places import KAFKA
from eventbus.errors import MachineError
from eventbus.jvm.jars import Jar, ensure_jars

JARS = {name: f"the content of {name}".encode() * 1000 for name in ("alpha", "beta", "gamma", "delta")}
LOCK = [Jar("org.example", name, "1.0", hashlib.sha256(content).hexdigest()) for name, content in JARS.items()]


class Repository:
    """Serves `JARS`; a test may change what it answers."""

    def __init__(self) -> None:
        self.content = dict(JARS)
        self.cut_short: set[str] = set()
        self.fetched: list[str] = []
        repository = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.split("/")[-1].removesuffix("-1.0.jar")
                content = repository.content.get(name)
                if content is None:
                    self.send_error(HTTPStatus.NOT_FOUND)
                    return
                repository.fetched.append(name)
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if name in repository.cut_short else content)

            def log_message(self, *_: object) -> None:
                """Stay silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    repository = Repository()
    thread = threading.Thread(target=repository.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("EVENTBUS_MAVEN_REPOSITORY", f"http://127.0.0.1:{repository.server.server_port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield repository
    repository.server.shutdown()
    thread.join()
    repository.server.server_close()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def files(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()} - {"lock"}


def test_every_jar_is_fetched_once_and_then_no_network_is_needed(
    repository: Repository, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = ensure_jars(KAFKA, LOCK, cache)
    assert [path.read_bytes() for path in paths] == list(JARS.values())
    assert sorted(repository.fetched) == sorted(JARS)
    assert "Fetching Apache Kafka 4.3.1, 4 jars, once" in capsys.readouterr().err

    repository.content.clear()
    assert ensure_jars(KAFKA, LOCK, cache) == paths
    assert capsys.readouterr().err == ""


def test_a_jar_with_another_checksum_is_refused_and_not_kept(repository: Repository, cache: Path) -> None:
    repository.content["beta"] = b"something else"
    with pytest.raises(MachineError, match=rf"org\.example:beta:1\.0 was refused: .* expected {LOCK[1].sha256}"):
        ensure_jars(KAFKA, LOCK, cache)
    assert "beta-1.0.jar" not in files(cache)


def test_a_damaged_jar_in_the_cache_is_fetched_again(repository: Repository, cache: Path) -> None:
    paths = ensure_jars(KAFKA, LOCK, cache)
    paths[2].write_bytes(b"damaged")
    ensure_jars(KAFKA, LOCK, cache)
    assert paths[2].read_bytes() == JARS["gamma"]
    assert repository.fetched.count("gamma") == 2
    assert repository.fetched.count("alpha") == 1


def test_an_interrupted_download_is_never_used(repository: Repository, cache: Path) -> None:
    repository.cut_short.add("gamma")
    with pytest.raises(MachineError, match=r"org\.example:gamma:1\.0 cannot be fetched"):
        ensure_jars(KAFKA, LOCK, cache)
    assert files(cache) <= {"alpha-1.0.jar", "beta-1.0.jar", "delta-1.0.jar"}

    repository.cut_short.clear()
    assert all(path.exists() for path in ensure_jars(KAFKA, LOCK, cache))


def test_what_a_killed_fetch_left_behind_is_removed(repository: Repository, cache: Path) -> None:
    leftover = cache / "fetching-killed" / "org" / "example"
    leftover.mkdir(parents=True)
    ensure_jars(KAFKA, LOCK, cache)
    assert files(cache) == {jar.filename for jar in LOCK}


def test_an_unreachable_repository_is_explained(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        monkeypatch.setenv("EVENTBUS_MAVEN_REPOSITORY", f"http://127.0.0.1:{nobody_listens.getsockname()[1]}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        with pytest.raises(MachineError) as caught:
            ensure_jars(KAFKA, LOCK, cache)
    for advice in ("org.example:", "HTTPS_PROXY", "EVENTBUS_MAVEN_REPOSITORY", str(cache)):
        assert advice in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_jar_that_the_repository_does_not_have_is_named(repository: Repository, cache: Path) -> None:
    del repository.content["delta"]
    with pytest.raises(MachineError, match=r"org\.example:delta:1\.0 cannot be fetched"):
        ensure_jars(KAFKA, LOCK, cache)


def test_two_processes_that_fetch_at_once_share_the_work(repository: Repository, cache: Path, tmp_path: Path) -> None:
    lock = tmp_path / "lock.json"
    lock.write_bytes(msgspec.json.encode(LOCK))
    program = (
        "import msgspec, sys; from pathlib import Path; from eventbus.broker.places import KAFKA;"
        "from eventbus.jvm.jars import Jar, ensure_jars;"
        "ensure_jars(KAFKA, msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=list[Jar]), Path(sys.argv[2]))"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program, lock, cache]) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert sorted(repository.fetched) == sorted(JARS)
    assert [path.read_bytes() for path in ensure_jars(KAFKA, LOCK, cache)] == list(JARS.values())


def test_without_jgo_the_message_names_the_extra(
    repository: Repository, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    with pytest.raises(MachineError, match=r"pip install 'kafka-eventbus\[broker\]'"):
        ensure_jars(KAFKA, LOCK, cache)


def test_the_lock_file_pins_a_complete_kafka() -> None:
    jars = KAFKA.jars()
    assert "org.apache.kafka:kafka_2.13:4.3.1" in {jar.coordinate for jar in jars}
    assert all(len(jar.sha256) == 64 for jar in jars)
    assert len({jar.filename for jar in jars}) == len(jars)
