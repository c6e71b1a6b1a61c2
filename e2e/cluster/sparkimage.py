"""The image of Spark's pods, as an archive: in all that they notice it is what deploy/spark/Dockerfile makes."""

from __future__ import annotations

import sys
from pathlib import Path

from e2e.cluster.image import (
    SITE,
    SUPERFLUOUS,
    USER,
    Layer,
    dependencies,
    environment,
    files_in_image,
    libraries,
    project_layers,
    write_archive,
)
from eventbus.jvm.jars import ensure_jars
from eventbus.jvm.java import SPARK, find_java
from sensors.spark.session import CONNECTOR

SPARK_IMAGE = "localhost/eventbus-spark:e2e"

_FILES = Path(__file__).parents[2] / "deploy" / "spark"
_HOME = SITE / "pyspark"
_PROGRAMS = tuple(map(Path, ("/bin/bash", "/bin/ps", "/bin/rm", "/usr/bin/dirname", "/usr/bin/env")))
_NOT_OF_JAVA = frozenset({"jmods", "src.zip", "include", "legal", "man", "docs"})


def spark_image(into: Path, cache: Path) -> None:
    """`cache` keeps the layer that it shares with the project's own image."""
    java, python = find_java(SPARK).home, Path(sys.executable).resolve()
    with Layer(into.with_suffix(".spark"), SUPERFLUOUS | _NOT_OF_JAVA) as layer:
        files = files_in_image(dependencies(extra="spark"))
        for source, path in files.items():
            layer.add(source, path)
        for jar in ensure_jars(CONNECTOR):
            layer.add(jar, _HOME / "jars" / jar.name)
        layer.add(java, java)
        for program in _PROGRAMS:
            layer.add(program, program)
        layer.add(_FILES / "submitted.py", SITE / "submitted.py")
        layer.add(_FILES / "entrypoint.sh", Path("/opt/entrypoint.sh"))
        compiled = [*_PROGRAMS, java / "bin" / "java", *(each for each in files if ".so" in each.suffixes)]
        for library in sorted(libraries([*compiled, *java.rglob("*.so")])):
            layer.add(library, library)
    settings = {
        "Entrypoint": ["/bin/bash", "/opt/entrypoint.sh"],
        "Cmd": ["--help"],
        "User": f"{USER}:{USER}",
        "WorkingDir": "/tmp",  # noqa: S108 - of the image
        "Env": [
            *environment("/usr/bin", "/bin"),
            f"SPARK_HOME={_HOME}",
            f"JAVA_HOME={java}",
            f"PYSPARK_PYTHON={python}",
        ],
    }
    write_archive(into, SPARK_IMAGE, [*project_layers(into, cache), layer.path], settings)
