"""A sensor in plain Python: declared with decorators, run in this process, on a bus in memory."""

# ruff: noqa: T201 - it shows what happens

from __future__ import annotations

from eventbus import Bus, Event
from sensors import ActionCall, RetryPolicy, Sensor

sensor = Sensor("kitchen", {"order": ("table", "order"), "dish": ("stove", "dish"), "alarm": ("stove", "alarm")})


@sensor.trigger("serve", "order && dish")
def serve(call: ActionCall) -> None:
    order, dish = call.events["order"].json(), call.events["dish"].json()
    print(f"serve {dish['name']} at table {order['table']}")


@sensor.trigger("rescue", "alarm", at_least_once=True, retry=RetryPolicy(steps=3, duration=0.01))
def rescue(call: ActionCall) -> None:
    print(f"rescue, attempt {call.attempt}")
    if call.attempt < 2:
        raise RuntimeError("the lid is hot")


def run(bus: Bus) -> None:
    """Publish a few events and wait for what they cause. The common key keeps them in order."""
    with sensor.start(bus) as kitchen:
        kitchen.wait_ready()
        bus.publish(
            Event.new("table", "order", {"table": 7}, partitionkey="kitchen"),
            Event.new("stove", "dish", {"name": "soup"}, partitionkey="kitchen"),
            Event.new("stove", "dish", {"name": "pasta"}, partitionkey="kitchen"),
        )
        kitchen.settle()
        bus.publish(Event.new("stove", "alarm"))
        kitchen.settle()
        bus.publish(Event.new("table", "order", {"table": 3}))
        kitchen.settle()


if __name__ == "__main__":
    with Bus.memory() as memory:
        run(memory)
