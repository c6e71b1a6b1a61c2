"""What sources that fetch are tested with; the package has it, for the tests of others."""

from __future__ import annotations

from eventsources.testing.harness import PATIENCE, SOON, Fetcher, Hook, Killed, fetching, killed, running, until

__all__ = ["PATIENCE", "SOON", "Fetcher", "Hook", "Killed", "fetching", "killed", "running", "until"]
