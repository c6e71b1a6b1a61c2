"""The `python` action calls a function and tells apart how it can fail."""

from __future__ import annotations

from typing import Any

import pytest

from sensors.actions import make_action
from sensors.actions.base import ActionCall, ActionError
from sensors.actions.python import PythonAction, PythonSpec
from tests.actions.conftest import CONTEXT, make_call


def _action(function: Any) -> PythonAction:
    action = make_action("python", PythonSpec(function=function), CONTEXT)
    assert isinstance(action, PythonAction)
    return action


def test_the_function_gets_the_call() -> None:
    calls: list[ActionCall] = []
    action = _action(calls.append)
    assert action.invoke(make_call()) == "ok"
    action.close()
    assert calls == [make_call()]


@pytest.mark.parametrize(
    ("result", "status"), [(None, "ok"), ("shipped", "shipped"), ("", "ok"), (42, "ok"), ("x" * 999, "x" * 200)]
)
def test_text_that_is_returned_becomes_the_status(result: object, status: str) -> None:
    assert _action(lambda _: result).invoke(make_call()) == status


def test_an_exception_is_a_failure_that_may_be_retried() -> None:
    def fail(_: ActionCall) -> None:
        raise KeyError("no such order")

    with pytest.raises(ActionError) as caught:
        _action(fail).invoke(make_call())
    assert str(caught.value) == "KeyError: 'no such order'"
    assert (caught.value.retriable, caught.value.sent) == (True, True)
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_action_error_is_taken_at_its_word() -> None:
    refusal = ActionError("never", retriable=False, sent=False)

    def refuse(_: ActionCall) -> None:
        raise refusal

    with pytest.raises(ActionError) as caught:
        _action(refuse).invoke(make_call())
    assert caught.value is refusal


def test_an_exit_is_not_swallowed() -> None:
    def leave(_: ActionCall) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        _action(leave).invoke(make_call())
