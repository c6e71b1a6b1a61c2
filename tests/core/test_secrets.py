"""Secrets are found where they are mounted, noticed when they change, and never shown."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from eventbus.errors import ConfigError
from sensors.secrets import MAX_BYTES, ConfigMapKeySelector, Refreshed, Secret, SecretKeySelector, redacted

CANARY = "canary-4711"
SELECTOR = SecretKeySelector(name="db-login", key="user.name")


@pytest.fixture(autouse=True)
def secrets_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVENTBUS_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("EVENTBUS_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path


def _mount(folder: Path, content: bytes) -> None:
    (folder / "db-login").mkdir(exist_ok=True, parents=True)
    (folder / "db-login" / "user.name").write_bytes(content)


def test_a_mounted_file_is_read_anew_every_time(secrets_dir: Path) -> None:
    _mount(secrets_dir, b"one\n")
    assert SELECTOR.read().reveal() == "one"
    _mount(secrets_dir, b"two\n\n")
    assert SELECTOR.read().reveal() == "two\n"


def test_without_a_file_the_environment_has_it(secrets_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTBUS_SECRET_DB_LOGIN_USER_NAME", "env")
    assert SELECTOR.read().reveal() == "env"
    _mount(secrets_dir, b"file")
    assert SELECTOR.read().reveal() == "file"


def test_a_config_map_has_places_of_its_own(secrets_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    selector = ConfigMapKeySelector(name="db-login", key="user.name")
    _mount(secrets_dir, b"secret")
    monkeypatch.setenv("EVENTBUS_CONFIG_DB_LOGIN_USER_NAME", "env")
    assert selector.read().reveal() == "env"
    _mount(secrets_dir / "config", b"config")
    assert selector.read().reveal() == "config"


def test_a_secret_that_is_nowhere_is_told_with_both_places(secrets_dir: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        SELECTOR.read()
    assert str(caught.value) == (
        f"the key `user.name` of the secret `db-login` is not there: mount it as {secrets_dir}/db-login/user.name, "
        "or set the environment variable EVENTBUS_SECRET_DB_LOGIN_USER_NAME"
    )


@pytest.mark.parametrize(
    ("content", "message"), [(b"\xff", "is not UTF-8 text"), (b"x" * (MAX_BYTES + 1), "is larger than")]
)
def test_a_file_that_no_secret_can_be_is_refused(secrets_dir: Path, content: bytes, message: str) -> None:
    _mount(secrets_dir, content)
    with pytest.raises(ConfigError, match=message):
        SELECTOR.read()


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "", ".x", "a\nb", "x" * 254])
def test_a_name_leads_nowhere_else(name: str) -> None:
    for fields in ({"name": name, "key": "k"}, {"name": "n", "key": name}):
        with pytest.raises(ValidationError, match="must consist of letters"):
            SecretKeySelector.model_validate(fields)


def test_a_secret_does_not_show_itself() -> None:
    secret = Secret(CANARY)
    shown = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret!s} {secret!r}",
        str([secret]),
        str({"a": secret}),
    ]
    assert not any(CANARY in text for text in shown)
    for leak in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="a secret cannot be copied"):
            leak(secret)


def test_something_made_of_secrets_is_made_anew_when_they_change(secrets_dir: Path) -> None:
    closed: list[str] = []
    _mount(secrets_dir, b"one")
    made = Refreshed(SELECTOR.read, lambda secret: secret.reveal(), closed.append)
    assert (made.get(), made.get(), closed) == ("one", "one", [])
    _mount(secrets_dir, b"two")
    assert (made.get(), closed) == ("two", ["one"])
    made.close()
    assert closed == ["one", "two"]


def test_what_is_outdated_is_closed_when_nobody_uses_it_any_more(secrets_dir: Path) -> None:
    closed: list[str] = []
    _mount(secrets_dir, b"one")
    made = Refreshed(SELECTOR.read, lambda secret: secret.reveal(), closed.append)
    with made.lent() as first, made.lent() as again:
        assert (first, again) == ("one", "one")
        _mount(secrets_dir, b"two")
        with made.lent() as second:
            assert (second, closed) == ("two", [])
        assert closed == []
    assert closed == ["one"]
    made.close()
    assert closed == ["one", "two"]


def test_a_secret_that_somebody_repeats_is_not_shown() -> None:
    assert redacted(f"{CANARY}, {CANARY}!", [Secret(CANARY), Secret("")]) == "<secret>, <secret>!"


def test_a_secret_that_may_be_missing_is_empty_then(monkeypatch: pytest.MonkeyPatch) -> None:
    selector = SecretKeySelector(name="may-be", key="missing", optional=True)
    assert selector.read().reveal() == ""
    monkeypatch.setenv("EVENTBUS_SECRET_MAY_BE_MISSING", "here")
    assert selector.read().reveal() == "here"
