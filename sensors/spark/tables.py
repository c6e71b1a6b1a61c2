"""A report as Parquet, for other programs: one folder per table."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence

import msgspec
from pyspark.sql import SparkSession

from sensors.audit.violations import Violation
from sensors.spark.report import AuditReport, Hour, Latency, Notice, TriggerReport

_TABLES: dict[str, type[msgspec.Struct]] = {
    "violations": Violation,
    "given_up": Notice,
    "repeated": Notice,
    "triggers": TriggerReport,
    "latencies": Latency,
    "hours": Hour,
}
_TYPES = {"int": "bigint", "str": "string", "Breach": "string", "dict[str, int]": "map<string, bigint>"}
_TUPLES = {"tuple[str, ...]": "array<string>", "tuple[int, ...]": "array<bigint>"}


def write_tables(spark: SparkSession, report: AuditReport, folder: str) -> None:
    """Replaces what an earlier audit has written there."""
    for name, kind in _TABLES.items():
        rows = _rows(getattr(report, name))
        spark.createDataFrame(rows, _schema(kind)).coalesce(1).write.mode("overwrite").parquet(f"{folder}/{name}")


def _schema(kind: type[msgspec.Struct]) -> str:
    annotations = {name: each for base in kind.__mro__ for name, each in inspect.get_annotations(base).items()}
    columns = [(field.encode_name, annotations[field.name]) for field in msgspec.structs.fields(kind)]
    return ", ".join(f"{name} {(_TYPES | _TUPLES)[annotation]}" for name, annotation in columns)


def _rows(structs: Iterable[msgspec.Struct]) -> list[Sequence[object]]:
    return [tuple(_plain(value) for value in msgspec.structs.astuple(each)) for each in structs]


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
