"""`make bench-receiver`: rates and latencies as ratios in one run. Writes build/bench-receiver.json."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from e2e.bench_receiver.served import PATH
from eventbus.broker import EmbeddedBroker

REPORT = Path("build/bench-receiver.json")
GOAL = 0.6
_BODY = json.dumps({"order": 17, "customer": "c3", "lines": [1, 2, 3], "amount": 12.5}).encode()
_REQUEST = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    PATH.encode(),
    len(_BODY),
    _BODY,
)
_ACCEPTED = b"HTTP/1.1 202"
_KIBIBYTES = 1024


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=8)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--connections", type=int, default=64)
    arguments.add_argument("--slow-clients", type=int, default=5000)
    options = arguments.parse_args()
    rounds: list[dict[str, tuple[float, float]]] = []
    with EmbeddedBroker(ephemeral=True) as broker:
        for _ in range(options.rounds):
            each = {}
            for name, servers in (("null", []), ("kafka", [broker.bootstrap_servers])):
                with _served(servers) as (port, _pid):
                    asyncio.run(_load(port, options.connections, 1.0))  # warm
                    each[name] = asyncio.run(_load(port, options.connections, options.seconds))
            rounds.append(each)
        with _served([broker.bootstrap_servers]) as (port, pid):
            before, after = asyncio.run(_crowd(port, pid, options.slow_clients))
    result: dict[str, Any] = {
        "rate": {name: round(statistics.median(each[name][0] for each in rounds)) for name in ("null", "kafka")},
        "p99_ms": {name: round(statistics.median(each[name][1] for each in rounds), 1) for name in ("null", "kafka")},
        "ratio": round(statistics.median(each["kafka"][0] / each["null"][0] for each in rounds), 2),
        "slow_clients": {"number": options.slow_clients, "mebibytes_before": before, "mebibytes_with_them": after},
    }
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps({"cores": os.cpu_count(), **result}, indent=2) + "\n")
    table = Table("", "without a log", "with Kafka", "ratio")
    table.add_row(
        "events/s", f"{result['rate']['null']:,}", f"{result['rate']['kafka']:,}", f"{result['ratio']} (goal ≥ {GOAL})"
    )
    table.add_row("p99, ms", str(result["p99_ms"]["null"]), str(result["p99_ms"]["kafka"]), "")
    table.add_row(f"memory with {options.slow_clients:,} slow clients", "", f"{after} MiB (before: {before} MiB)", "")
    Console().print(table)


@contextmanager
def _served(servers: list[str]) -> Iterator[tuple[int, int]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "e2e.bench_receiver.served", *servers], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process.pid
    finally:
        process.terminate()
        process.wait()


async def _load(port: int, connections: int, seconds: float) -> tuple[float, float]:
    """Events per second, and the 99th percentile of the latency in milliseconds."""
    end = time.perf_counter() + seconds
    each = await asyncio.gather(*(_client(port, end) for _ in range(connections)))
    latencies = sorted(latency for own in each for latency in own)
    return len(latencies) / seconds, latencies[int(len(latencies) * 0.99)] * 1000


async def _client(port: int, end: float) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    latencies = []
    while (began := time.perf_counter()) < end:
        writer.write(_REQUEST)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(_ACCEPTED), answer
        latencies.append(time.perf_counter() - began)
    writer.close()
    return latencies


async def _crowd(port: int, pid: int, clients: int) -> tuple[int, int]:
    """Memory without and with many clients that have sent most of a large body and leave it at that."""
    before = _resident(pid)
    writers = []
    for _ in range(clients):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n" % PATH.encode()
        writer.write(head + b"x" * 60_000)
        await writer.drain()
        writers.append(writer)
    during = _resident(pid)
    for writer in writers:
        writer.close()
    return before, during


def _resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) // _KIBIBYTES


if __name__ == "__main__":
    main()
