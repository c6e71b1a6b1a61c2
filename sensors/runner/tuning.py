"""Settings of the interpreter that suit a process which does nothing but run sensors."""

from __future__ import annotations

import gc

_YOUNG, _MIDDLE, _OLD = 200_000, 10, 10


def relax_garbage_collection() -> None:
    """Look for cycles less often, and not among what lives as long as the process.

    A batch makes tens of thousands of small objects that hold each other in no cycles. With Python's own thresholds
    the collector walks through them over and over, which was measured at an eighth of the match stage's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
