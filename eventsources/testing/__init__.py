"""For the tests of event sources, ours and others'. Needs pytest."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("eventsources.testing.contract", "eventsources.testing.harness")
