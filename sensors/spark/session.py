"""A Spark session: on this machine by default, on a cluster where one is named, or the one that `spark-submit` made."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from eventbus.errors import ConfigError, EventBusError, MachineError
from eventbus.jvm.jars import Software, ensure_jars
from eventbus.jvm.java import SPARK, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR = Software(
    title="Spark's Kafka connector 4.0.0",
    folder="spark-kafka-4.0.0",
    package="sensors.spark",
    extra="spark",
    mebibytes=20,
)
"""Its lock has what PySpark does not bring itself; newer versions of the connector do not resolve completely."""

FIRST_VERSIONS = "spark.sql.sources.useV1SourceList"
"""Spark's setting of which sources it reads as it did before version 3."""
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_STANDARD_ERROR = 2
_LOCAL: dict[str, Any] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",  # nobody waits for an answer while it collects
    # An audit has more queries than Spark remembers the code of: `--follow` would compile all of them in every round.
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
}
_ALWAYS: dict[str, Any] = {
    "spark.sql.session.timeZone": "UTC",
    # What is wrong with one record is null there and judged as such; it does not end the work on all others.
    "spark.sql.ansi.enabled": "false",
    # A source of events may be called 17 or 2026-01-01, and is still a text where it names a folder of an archive.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # What is kept is kept for seconds: to compress it costs more than to write it to disk.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # What a worker holds of a partition at a time: so many records, or so many bytes of large ones.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 << 20),
    "spark.sql.streaming.metricsEnabled": "false",
    # All but `kafka`: the first version of that source, Spark's default, makes Java objects of every record and its
    # headers, and rows of those.
    FIRST_VERSIONS: "avro,csv,json,orc,parquet,text",
}

_TALKERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers by which PySpark prints every error, at length, before it raises it."""

log = logging.getLogger("eventbus.spark")


class SparkOptions(msgspec.Struct, frozen=True):
    """How Spark is to run."""

    master: str | None = None
    """As `spark-submit` has it; None: all cores of this machine."""
    memory: str = "2g"
    """Of the driver, which is also the one that works where there is no cluster."""
    verbose: bool = False
    """Let Spark speak."""


@contextmanager
def spark_session(name: str, options: SparkOptions) -> Iterator[SparkSession]:
    """Raises `MachineError` where Spark cannot run; what goes wrong inside the block becomes one of our errors too."""
    spark = _start(name, options)
    try:
        with explained():
            yield spark
    finally:
        if _SUBMITTED not in os.environ:
            spark.stop()


def require_pyspark() -> None:
    """Before any module is imported that needs it."""
    try:
        import pyspark.sql  # noqa: F401 - only whether it is there
    except ImportError:
        raise MachineError("this needs PySpark: pip install 'kafka-eventbus[spark]'") from None


def _start(name: str, options: SparkOptions) -> SparkSession:
    require_pyspark()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).config(map=_ALWAYS)
    if _SUBMITTED in os.environ:  # master, jars and Java are those of whoever has submitted us
        return builder.getOrCreate()
    os.environ["JAVA_HOME"] = str(find_java(SPARK).home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = builder.config("spark.jars", ",".join(map(str, ensure_jars(CONNECTOR))))
    builder = builder.config("spark.driver.memory", options.memory).master(options.master or "local[*]")
    if options.master is None or options.master.startswith("local"):
        builder = builder.config(map=_LOCAL)
    with _silence(options) as last_words, explained(last_words):
        spark = builder.getOrCreate()
        if not options.verbose:
            spark.sparkContext.setLogLevel("OFF")
            for talker in _TALKERS:
                logging.getLogger(talker).disabled = True
    return spark


@contextmanager
def _silence(options: SparkOptions) -> Iterator[Path | None]:
    """Send what Java says to a file: it inherits standard error when it starts, and keeps it."""
    if options.verbose:
        yield None
        return
    descriptor, path = tempfile.mkstemp(prefix="eventbus-spark-", suffix=".log")
    sys.stderr.flush()
    before = os.dup(_STANDARD_ERROR)
    os.dup2(descriptor, _STANDARD_ERROR)
    try:
        yield Path(path)
    finally:
        os.dup2(before, _STANDARD_ERROR)
        os.close(before)
        os.close(descriptor)
        Path(path).unlink()  # Java still writes to it; nobody else needs a name for it


@contextmanager
def explained(last_words: Path | None = None) -> Iterator[None]:
    """Turn what Spark raises into one message that says what to do."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _explanation(str(error), last_words) from error


def _explanation(text: str, last_words: Path | None) -> EventBusError:
    for sign, error in _SIGNS.items():
        if sign in text:
            return error
    said = last_words.read_text(errors="replace").strip().splitlines() if last_words else []
    log.debug("%s", text)
    reason = next((line for line in reversed(text.splitlines()) if "Caused by:" in line), text.strip().splitlines()[0])
    hint = f" Spark's last words: {said[-1]}" if said else ""
    return MachineError(f"Spark has failed: {reason.strip().removeprefix('Caused by: ')}.{hint} -v shows all it says")


_SIGNS: dict[str, EventBusError] = {
    "Failed to find data source: kafka": MachineError(
        "this Spark has no Kafka connector: submit with --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
    ),
    "TopicAuthorizationException": ConfigError(
        "Kafka does not allow us to read a topic: grant READ and DESCRIBE on the bus's and the sensor's topics"
    ),
    "GroupAuthorizationException": ConfigError(
        "Kafka does not allow Spark its consumer groups: grant READ on groups that begin with `spark-kafka-`"
    ),
    "OffsetOutOfRange": MachineError(
        "Kafka has removed records (retention) while they were being read: repeat it, with a later --since"
    ),
    "CONCURRENT_STREAM_LOG_UPDATE": MachineError(
        "another archiver has written to the same archive meanwhile: nothing is lost; repeat it, one at a time"
    ),
    "getSubject is not supported": MachineError(
        "Spark runs on a Java that is too new for it: set JAVA_HOME to a Java 17 or 21"
    ),
    "No module named 'sensors'": MachineError(
        "Spark's workers do not have this package: install kafka-eventbus in their image, or submit with --py-files"
    ),
}


def interpret(spark: SparkSession) -> None:
    """For few records: to compile a query takes longer than to interpret it."""
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")


class Progress(threading.Thread):
    """Tells how far Spark is, while it works, on a terminal."""

    def __init__(self, spark: SparkSession, title: str) -> None:
        super().__init__(name="spark-progress", daemon=True)
        self._tracker = spark.sparkContext.statusTracker()
        self._title = title
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        if Console(stderr=True).is_terminal:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(self._title, total=None)
            seen: dict[int, tuple[int, int]] = {}
            while not self._stopped.wait(0.2):
                for stage in self._tracker.getActiveStageIds():
                    info = self._tracker.getStageInfo(stage)
                    if info is not None:
                        seen[stage] = (info.numCompletedTasks, info.numTasks)
                for stage in seen.keys() - set(self._tracker.getActiveStageIds()):
                    seen[stage] = (seen[stage][1], seen[stage][1])
                done, total = (sum(numbers) for numbers in zip(*seen.values(), strict=True)) if seen else (0, None)
                bar.update(task, completed=done, total=total)
