"""What filters cost per event, beyond parsing it: `python -m e2e.bench.filters`.

Processor time of this process, so that a busy machine does not count; for scripts, which run elsewhere, the time that
passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from time import perf_counter, process_time
from typing import Any

from eventbus.events import Event
from sensors.filters.candidate import Candidate
from sensors.filters.gate import Gate, compile_gate
from sensors.filters.spec import Filters
from sensors.scripts import ScriptHost

_ROUNDS, _EVENTS = 15, 2000
_DATA = {
    "body": {
        "customer": {"id": 17, "country": "DE", "name": "A. Customer"},
        "items": [{"sku": f"sku-{number}", "price": number * 1.5} for number in range(20)],
        "total": 285.0,
        "paid": True,
    }
}
_FILTERS: Mapping[str, Mapping[str, Any]] = {
    "data, a number": {"data": [{"path": "body.total", "type": "number", "comparator": ">", "value": ["100"]}]},
    "data, a text": {"data": [{"path": "body.customer.country", "type": "string", "value": ["DE", "AT"]}]},
    "data, a pattern": {"data": [{"path": "body.customer.country", "type": "string", "value": ["^(DE|AT)$"]}]},
    "data, three of them": {
        "data": [
            {"path": "body.total", "type": "number", "comparator": ">", "value": ["100"]},
            {"path": "body.customer.country", "type": "string", "value": ["^(DE|AT)$"]},
            {"path": "body.paid", "type": "bool", "value": ["true"]},
        ]
    },
    "data, a query": {"data": [{"path": "body.items.#(price>25).sku", "type": "string", "value": ["sku"]}]},
    "expr": {
        "exprs": [
            {
                "expr": "total > 100 && country in ('DE', 'AT')",
                "fields": [
                    {"name": "total", "path": "body.total"},
                    {"name": "country", "path": "body.customer.country"},
                ],
            }
        ]
    },
    "context": {"context": {"source": "shop", "region": "eu"}},
    "time": {"time": {"start": "00:00:00", "stop": "23:59:59", "timezone": "Europe/Berlin"}},
    "script": {"script": "return event.body.total > 100"},
}


def main() -> None:
    event = Event.new("shop", "order", _DATA, region="eu")
    scripts = ScriptHost()
    _show("parsing the event", _microseconds(event, None, parsed=False))
    for name, filters in _FILTERS.items():
        gate = compile_gate(Filters.model_validate(filters), "and", None, scripts)
        _show(name, _microseconds(event, gate, parsed=True))
    scripts.close()


def _microseconds(event: Event, gate: Gate | None, *, parsed: bool) -> float:
    """The median of some rounds, of which each takes the same event many times."""
    scripted = gate is not None and "script" in gate.reasons
    clock = perf_counter if scripted else process_time
    rounds = []
    for _ in range(_ROUNDS):
        candidates = [Candidate(event, 0) for _ in range(50 if scripted else _EVENTS)]
        if parsed:
            for candidate in candidates:
                candidate.document  # noqa: B018 - so that it is not measured
        begun = clock()
        if gate is None:
            for candidate in candidates:
                candidate.document  # noqa: B018
        else:
            for candidate in candidates:
                gate.admit(candidate)
        rounds.append((clock() - begun) / len(candidates) * 1e6)
    return median(rounds)


def _show(name: str, microseconds: float) -> None:
    print(f"{name:<22} {microseconds:8.2f} µs")


if __name__ == "__main__":
    main()
