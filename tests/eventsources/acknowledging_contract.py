"""What every source has to do that acknowledges; the package has it, for the tests of others."""

from __future__ import annotations

from eventsources.testing.contract import AcknowledgingContract, Broker

__all__ = ["AcknowledgingContract", "Broker"]
