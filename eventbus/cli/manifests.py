"""From what a user names on the command line to sensors: files, directories, plain names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import typer

from eventbus.errors import ConfigError
from eventbus.names import BusName, Kind, SensorName
from eventsources.spec import MANIFESTS, EventSourceManifest
from sensors.sensor import Sensor
from sensors.spec.loader import MAX_BYTES, decode_text, load_manifest, load_manifests, read_text
from sensors.spec.models import SensorManifest
from sensors.spec.problems import ManifestError, Problem

STDIN = Path("-")
_SUFFIXES = (".yaml", ".yml")


class Loaded(msgspec.Struct, frozen=True):
    """A sensor, where it came from and where it belongs."""

    file: Path
    manifest: SensorManifest
    name: SensorName

    @property
    def sensor(self) -> Sensor:
        return Sensor.of(self.manifest)


class LoadedSource(msgspec.Struct, frozen=True):
    """An event source, where it came from and where it belongs."""

    file: Path
    manifest: EventSourceManifest
    bus: BusName


def find_manifests(paths: Sequence[Path]) -> Iterator[Path]:
    """The files, and for directories the YAML files below them; what is hidden stays so."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        below = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
        visible = [file for file in below if not any(part.startswith(".") for part in file.relative_to(path).parts)]
        if not visible:
            raise ConfigError(f"{path}: there is no *.yaml or *.yml file in this directory")
        yield from visible


def read_source(path: Path) -> str:
    """The text of a file or, for `-`, of the standard input. Raises `ManifestError`."""
    if path != STDIN:
        return read_text(path)
    return decode_text(typer.get_binary_stream("stdin").read(MAX_BYTES + 1), shown_name(path))


def shown_name(path: Path) -> str:
    return "<stdin>" if path == STDIN else str(path)


def load_sensors(paths: Sequence[Path], default: BusName, generation: int | None = None) -> list[Loaded]:
    """All sensors of all files. Raises `ManifestError` with the problems of all of them."""
    loaded: list[Loaded] = []
    problems: list[Problem] = []
    for file in find_manifests(paths):
        try:
            loaded += [_loaded(file, manifest, default, generation) for manifest in load_manifests(file)]
        except ManifestError as error:
            problems += error.problems
    if problems:
        raise ManifestError(problems)
    return loaded


def load_all(
    paths: Sequence[Path], default: BusName, generation: int | None = None
) -> tuple[list[Loaded], list[LoadedSource]]:
    """All sensors and event sources of all files. Raises `ManifestError` with the problems of all of them."""
    sensors: list[Loaded] = []
    sources: list[LoadedSource] = []
    problems: list[Problem] = []
    for file in find_manifests(paths):
        try:
            manifests = MANIFESTS.load(file)
        except ManifestError as error:
            problems += error.problems
            continue
        sensors += [_loaded(file, each, default, generation) for each in manifests if isinstance(each, SensorManifest)]
        sources += [
            LoadedSource(file, each, _bus(each, default)) for each in manifests if isinstance(each, EventSourceManifest)
        ]
    if problems:
        raise ManifestError(problems)
    return sensors, sources


def load_sensor(path: Path, default: BusName) -> Loaded:
    """The one sensor of a file."""
    return _loaded(path, load_manifest(path), default)


def resolve_name(sensor: str, default: BusName) -> SensorName:
    """A sensor that is given by its manifest or by its name."""
    path = Path(sensor)
    if path.suffix in _SUFFIXES or path.exists():
        return load_sensor(path, default).name
    return SensorName(default, sensor)


def refuse_collisions(sensors: Sequence[Loaded]) -> None:
    """Two sensors with the same topics would work on each other's records."""
    owners: dict[str, Loaded] = {}
    for loaded in sensors:
        for kind in Kind:
            other = owners.setdefault(loaded.name.topic(kind), loaded)
            if other is not loaded:
                raise ConfigError(_collision(other, loaded))


def refuse_shared_ports(sources: Sequence[LoadedSource]) -> None:
    """Only one of them could listen."""
    owners: dict[int, LoadedSource] = {}
    for loaded in sources:
        for port in sorted(loaded.manifest.ports()):
            other = owners.setdefault(port, loaded)
            if other is not loaded:
                both = " and ".join(f"{each.manifest.name} ({each.file})" for each in (other, loaded))
                raise ConfigError(f"the event sources {both} would both listen on port {port}: change `port` of one")


def _collision(one: Loaded, other: Loaded) -> str:
    if one.name == other.name:
        return f"the sensor {one.name} is declared twice: in {one.file} and in {other.file}"
    return (
        f"the sensors {one.name} ({one.file}) and {other.name} ({other.file}) would use the same topics "
        f"(`{one.name.prefix}-…`): rename one of them"
    )


def _loaded(file: Path, manifest: SensorManifest, default: BusName, generation: int | None = None) -> Loaded:
    if generation is not None:
        metadata = manifest.metadata.model_copy(update={"generation": generation})
        manifest = manifest.model_copy(update={"metadata": metadata})
    return Loaded(file, manifest, SensorName(_bus(manifest, default), manifest.name))


def _bus(manifest: SensorManifest | EventSourceManifest, default: BusName) -> BusName:
    return BusName(
        manifest.namespace if "namespace" in manifest.metadata.model_fields_set else default.namespace,
        manifest.spec.eventBusName if "eventBusName" in manifest.spec.model_fields_set else default.bus,
    )
