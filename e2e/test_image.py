"""The image that the Dockerfile makes: built for real, on a base of files of this machine, and run as pods are."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from packaging.utils import canonicalize_name

from e2e.cluster.image import PASSWD, SETTINGS, USER, asked_for, bare_python_image, dependencies

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CERTIFICATES = Path("/etc/ssl/certs")
ABOUT_THE_INDEX = ("index-url", "extra-index-url", "trusted-host", "proxy", "cert", "default-timeout")
NOT_FOR_PODS = {"pyspark", "pyarrow", "pytest"}
IMPORT_ALL = """
import importlib, pkgutil
import aws_msk_iam_sasl_signer, botocore, confluent_kafka, cryptography.x509, fastavro, grpc, jq, kubernetes, lupa
import minio, nats, nkeys, paho.mqtt.client, pika, re2, redis, uvicorn
for package in ("eventbus", "sensors", "eventsources"):
    inside = importlib.import_module(package).__path__
    for module in pkgutil.walk_packages(inside, f"{package}.", onerror=lambda _: None):
        try:
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            print(error.name)
        except Exception as error:
            print(module.name, repr(error))
"""


# --- what needs no builder ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dockerfile", ["Dockerfile", "deploy/spark/Dockerfile"])
def test_what_is_copied_is_there_and_not_ignored(dockerfile: str) -> None:
    copied = [line.split()[1:-1] for line in (ROOT / dockerfile).read_text().splitlines() if line.startswith("COPY ")]
    sources = [each for line in copied if not line[0].startswith("--from=") for each in line]
    let_through = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sources
    for each in sources:
        assert (ROOT / each).exists()
        assert any(Path(each).is_relative_to(name) for name in let_through)


def locked(name: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / f"requirements/{name}.lock").read_text(), re.MULTILINE)
    return dict(found)


@pytest.mark.parametrize("extra", ["pods", "spark"])
def test_the_lock_has_what_is_asked_for(extra: str) -> None:
    for requirement in asked_for(extra):
        assert requirement.specifier.contains(locked(extra)[canonicalize_name(requirement.name)])


def test_spark_comes_to_an_image_in_which_it_changes_nothing() -> None:
    there = locked("pods")
    assert {name: there[name] for name in locked("spark").keys() & there.keys()}.items() <= locked("spark").items()


# --- a built one ----------------------------------------------------------------------------------------------------


class Image:
    """What was built, as its configuration and its files."""

    def __init__(self, settings: Mapping[str, Any], root: Path) -> None:
        self.settings = settings
        self.root = root

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.call(*self.settings["Entrypoint"], *arguments)

    def call(self, *command: str) -> subprocess.CompletedProcess[str]:
        """As in a pod: its user, nothing but /tmp to write to, nothing of this machine's environment."""
        script = """
            mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && cd "$0" &&
            mount -t tmpfs tmpfs tmp && mount -t proc proc proc && mount --bind "$1" var && shift && exec "$@"
        """
        private = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", script]
        chroot = [str(shutil.which("chroot")), "--userspec", self.settings["User"], "."]
        inside = ["env", "-i", *self.settings["Env"], *chroot]
        return subprocess.run(
            [*private, str(self.root), str(ROOT / "examples"), *inside, *command],
            capture_output=True,
            text=True,
            check=False,
        )

    def packages(self) -> Path:
        return next((self.root / "opt/eventbus/lib").glob("python3.*/site-packages"))


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    if os.geteuid() != 0:
        pytest.skip("an image can be built by root only")
    if shutil.which("buildah") is None:
        pytest.skip("an image is built by `buildah`, which is not installed")
    with TemporaryDirectory(prefix="eventbus-image-") as directory:
        place = Path(directory)
        bare_python_image(place / "python.tar")
        base = _buildah(place, "pull", "--quiet", f"oci-archive:{place / 'python.tar'}")
        options = ["--pull-never", "--isolation", "chroot", "--network", "host", "--build-arg", f"PYTHON={base}"]
        built = _buildah(place, "build", "--quiet", *options, *_reaching_the_index(place), str(ROOT))
        settings = json.loads(_buildah(place, "inspect", "--type", "image", built))["OCIv1"]["config"]
        container = _buildah(place, "from", "--pull-never", built)
        yield Image(settings, Path(_buildah(place, "mount", container)))


def _buildah(place: Path, command: str, *arguments: str) -> str:
    storage = ["--root", str(place / "storage"), "--runroot", str(place / "run"), "--storage-driver", "vfs"]
    done = subprocess.run(["buildah", *storage, command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def _reaching_the_index(place: Path) -> Sequence[str]:
    """pip in the build is told what pip here is told: a mirror, certificates."""
    file = configparser.RawConfigParser()
    file.read("/etc/pip.conf")
    told = {each: os.environ.get(f"PIP_{each.upper().replace('-', '_')}") for each in ABOUT_THE_INDEX}
    file.read_dict({"global": {name: value for name, value in told.items() if value}})
    with (place / "pip.conf").open("w") as written:
        file.write(written)
    mounted = {place / "pip.conf": "/etc/pip.conf", CERTIFICATES: CERTIFICATES}
    return [f"--volume={here}:{there}:ro" for here, there in mounted.items() if here.exists()]


@pytest.mark.parametrize("command", [[], ["--version"], ["controller", "--help"], ["run", "--help"]])
def test_it_is_the_command(image: Image, command: list[str]) -> None:
    done = image.run(*(command or image.settings["Cmd"]))
    assert (done.returncode, done.stderr) == (0, "")
    assert "eventbus" in done.stdout


def test_it_reads_manifests(image: Image) -> None:
    done = image.run("validate", "/var/05-http-retry/sensor.yaml", "/var/12-webhook")
    assert done.returncode == 0
    assert done.stderr == "3 files, 2 sensors, 2 event sources, 0 errors, 0 warnings\n"


def test_what_pods_are_told_to_run_is_there(image: Image) -> None:
    """Kubernetes' `command` takes the place of the entry point."""
    deployment = next(yaml.safe_load_all((ROOT / "deploy/base/controller.yaml").read_text()))
    program, *_ = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    assert image.call(program, "--version").stdout == image.run("--version").stdout


def test_its_user_is_nobody_who_can_write(image: Image) -> None:
    script = "import os, pathlib; print(os.getuid(), os.getgid(), pathlib.Path.home()); open('/opt/x', 'w')"
    done = image.call("python", "-c", script)
    assert done.stdout.split() == [str(USER), str(USER), "/tmp"]  # noqa: S108
    assert "Read-only file system" in done.stderr or "Permission denied" in done.stderr
    assert PASSWD in (image.root / "etc/passwd").read_text().splitlines()


def test_whatever_pods_may_be_asked_for_can_be_imported(image: Image) -> None:
    done = image.call("python", "-W", "ignore", "-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) == NOT_FOR_PODS


def test_nothing_is_left_of_the_build(image: Image) -> None:
    installed = {canonicalize_name(each.name): each for each in distributions(path=[str(image.packages())])}
    needed = dependencies(lambda name: installed[canonicalize_name(name)])
    assert set(installed) == {PROJECT["name"], *(canonicalize_name(each.name) for each in needed)}
    assert not (image.root / "src").exists()
    assert not any(each.stat().st_size for each in image.root.glob("etc/pip.conf"))
    assert not list((image.root / "root").glob(".cache"))


def test_no_start_compiles_anything(image: Image) -> None:
    done = image.call("python", "-v", "-c", "import eventbus.cli.main, eventbus.cli.run, eventbus.controller")
    assert done.returncode == 0
    assert "pyc matches " in done.stderr
    assert re.findall(r"^# code object from .*\.py'?$", done.stderr, re.MULTILINE) == []


def test_the_image_of_other_end_to_end_tests_is_like_it(image: Image) -> None:
    assert {name: image.settings.get(name) for name in SETTINGS} == SETTINGS
    assert image.settings.get("WorkingDir", "/") in {"", "/"}
