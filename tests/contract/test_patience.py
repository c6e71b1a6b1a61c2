"""A call that never returns must not take its caller along."""

from __future__ import annotations

from threading import Event as Flag

import pytest

from eventbus.kafka.patience import Impatient


def test_a_call_that_returns_in_time_is_waited_for() -> None:
    impatient = Impatient("test")
    done: list[int] = []
    assert impatient.call(lambda: done.append(1), 30)
    assert done == [1]
    impatient.close()


def test_what_a_call_raises_is_raised() -> None:
    impatient = Impatient("test")

    def fail() -> None:
        raise KeyError("no")

    with pytest.raises(KeyError):
        impatient.call(fail, 30)
    impatient.close()


def test_a_call_that_hangs_is_left_behind() -> None:
    impatient, release = Impatient("test"), Flag()

    def hang() -> None:
        release.wait(30)

    assert not impatient.call(hang, 0.01)
    release.set()
    impatient.close()
