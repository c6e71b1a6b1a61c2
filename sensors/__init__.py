"""Sensors: conditions on events, and the actions they trigger.

>>> from sensors import Sensor
>>> sensor = Sensor("greeter", {"hello": ("shop", "hello")})
"""

from sensors.actions.base import ActionCall, ActionError
from sensors.retry import RetryPolicy
from sensors.runner.replica import Replica, Settings
from sensors.sensor import Sensor

__all__ = ["ActionCall", "ActionError", "Replica", "RetryPolicy", "Sensor", "Settings"]
