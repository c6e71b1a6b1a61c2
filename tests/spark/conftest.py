"""One Spark for all of these tests: it takes seconds to start."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sensors.spark.session import SparkOptions, interpret, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS = 300
"""A test that starts Spark on a busy machine takes its time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            # PySpark leaves the sockets by which it fetches results to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
            item.add_marker(pytest.mark.timeout(_SECONDS))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PySpark's own modules, while they are imported
        with spark_session("eventbus-tests", SparkOptions(master="local[2]", memory="1g")) as session:
            session.conf.set("spark.sql.shuffle.partitions", "2")
            interpret(session)
            yield session


@pytest.fixture(autouse=True)
def _sockets_closed() -> Iterator[None]:
    """Here, and not in the next test that knows nothing of Spark."""
    yield
    gc.collect()


@pytest.fixture
def submitted(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command takes the Spark that is there, and leaves it alone, as where `spark-submit` has made it."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "0")
    monkeypatch.setenv("EVENTBUS_SLOT_DIR", str(tmp_path))
