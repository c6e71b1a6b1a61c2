"""One Spark for all of these tests: it takes seconds to start."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sensors.spark.session import SparkOptions, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves the sockets, by which it collects rows, to the garbage collector, and says so in its code."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PySpark's own modules, while they are imported
        with spark_session("eventbus-tests", SparkOptions(master="local[2]", memory="1g")) as session:
            session.conf.set("spark.sql.shuffle.partitions", "2")
            # To compile a query takes longer than to interpret it over as few rows as these tests have.
            session.conf.set("spark.sql.codegen.wholeStage", "false")
            session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
            yield session
