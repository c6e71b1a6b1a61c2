"""Why has this trigger not fired? From evidence to findings, and to the one most likely answer.

The order is that in which an operator would look: is anybody at work, and up to date; what is held, and what is waited
for; what did the events of late do; did it fire after all, and what became of that. The first that explains it is the
answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from eventbus.moments import duration, when
from eventbus.names import Stage
from sensors.deadletters import PAUSED
from sensors.evidence import Evidence, Firing, StageProgress, Tally, TriggerEvidence, TriggerState
from sensors.match import CORRELATE
from sensors.outcomes import DEAD_LETTERED, FAILED, LOST, SUCCEEDED
from sensors.rules import DUPLICATE, EXPIRED, RESET, SUPERSEDED, SUPPRESSED

FAR_BEHIND_RECORDS = 1000
FAR_BEHIND_MS = 60_000
_SHOWN = 5
_LET_GO = {
    EXPIRED: "got too old to be joined with what came later",
    RESET: "came before a reset of the conditions",
    DUPLICATE: "had been here before (`dedupe`)",
    SUPPRESSED: "would have fired too soon after another firing (`onceWithin`)",
    SUPERSEDED: "gave way to a newer one",
}
"""What became of an event, by the reason that the core gives."""


class Finding(msgspec.Struct, frozen=True):
    """One sentence."""

    about: str
    text: str


class Answer(msgspec.Struct, frozen=True):
    """Why it has not fired. `code` is for programs."""

    code: str
    text: str


class Diagnosis(msgspec.Struct, frozen=True):
    """What there is to say about one trigger."""

    trigger: str
    condition: str
    findings: list[Finding]
    answer: Answer


def diagnose(evidence: Evidence) -> list[Diagnosis]:
    return [
        Diagnosis(each.trigger, each.condition, list(_findings(evidence, each)), _answer(evidence, each))
        for each in evidence.triggers
    ]


# --- findings -------------------------------------------------------------------------------------------------------


def _findings(evidence: Evidence, trigger: TriggerEvidence) -> Iterator[Finding]:
    for stage in _stages(evidence, trigger):
        yield Finding("sensor", _progress(evidence, stage))
    if evidence.other_generation is not None:
        yield Finding("sensor", f"generation {evidence.other_generation} was at work last, which is not this manifest")
    if trigger.paused_since is not None:
        yield Finding("sensor", f"paused since {duration(evidence.now - trigger.paused_since)}")
    for state in trigger.held[:_SHOWN]:
        yield Finding("holds", _held(evidence, state))
    if len(trigger.held) > _SHOWN:
        yield Finding("holds", f"… and events of {len(trigger.held) - _SHOWN:,} more keys")
    yield Finding("events", _window(evidence))
    for text in _recent(trigger):
        yield Finding("events", text)
    yield Finding("fired", _last_firing(evidence, trigger.last))
    if trigger.waiting.count:
        yield Finding("fired", _waiting(evidence, trigger))
    for whose, letters in (("", trigger.dead_letters), (" (of no trigger in particular)", evidence.dead_letters)):
        for reason, tally in letters.items():
            count = _number(tally.count, "dead letter")
            yield Finding("dead", f"{count} {reason}{whose}, such as {tally.example}: {tally.text}")


def _stages(evidence: Evidence, trigger: TriggerEvidence) -> list[StageProgress]:
    """Those that this trigger needs."""
    return [stage for stage in evidence.stages if trigger.joins or stage.stage != Stage.JOIN]


def _progress(evidence: Evidence, stage: StageProgress) -> str:
    who = f"{stage.stage}: {_number(stage.replicas, 'replica')}"
    if not stage.begun:
        return f"{who}, has not begun to read"
    if not stage.behind or stage.oldest is None:
        return f"{who}, up to date"
    age = duration(evidence.now - stage.oldest)
    return f"{who}, {_number(stage.behind, 'record')} behind, the oldest since {age}"


def _held(evidence: Evidence, state: TriggerState) -> str:
    events = ", ".join(
        f"{each.dependency}={each.id} (since {duration(evidence.now - each.since)})" for each in state.held
    )
    waits_for = " or ".join(" and ".join(names) for names in state.missing)
    return f"{f'[{state.key}] ' if state.key else ''}{events or 'nothing'}; waits for {waits_for}"


def _window(evidence: Evidence) -> str:
    if evidence.since is None:
        return "there are no events"
    looked_at = f"{_number(evidence.events, 'event')} since {when(evidence.since)} looked at"
    if not evidence.unreadable.count:
        return looked_at
    unreadable = evidence.unreadable
    return f"{looked_at}; {unreadable.count:,} cannot be read, such as {unreadable.example}: {unreadable.text}"


def _recent(trigger: TriggerEvidence) -> Iterator[str]:
    recent = trigger.recent
    for dependency in sorted(trigger.asks_for):
        matched = recent.matched.get(dependency, Tally())
        yield f"{dependency}: {matched.count:,} matched" + (f", the last is {matched.example}" if matched.count else "")
        if dependency in recent.other_keys:
            other = recent.other_keys[dependency]
            yield f"{dependency}: {other.count:,} with other keys, such as {other.example} [{other.text}]"
        for reason, tally in recent.filtered.get(dependency, {}).items():
            yield f"{dependency}: {tally.count:,} filtered by {reason}, such as {tally.example}: {tally.text}"
    if recent.without_key.count:
        yield _without_key(recent.without_key)
    for reason, tally in recent.let_go.items():
        yield f"{tally.count:,} {_LET_GO.get(reason, reason)}, such as {tally.example} for {tally.text}"
    for miss in recent.near[:_SHOWN]:
        like = f"; was `{miss.meant}` meant?" if miss.meant else ""
        events = f"{_number(miss.count, 'event')} {miss.source}/{miss.name}"
        yield f"{events} that nobody asks for, such as {miss.example}{like}"


def _without_key(tally: Tally) -> str:
    return f"{_number(tally.count, 'event')} without a correlation key, such as {tally.example}: {tally.text}"


def _last_firing(evidence: Evidence, last: Firing | None) -> str:
    if last is None:
        return "no firing found"
    events = " ".join(
        f"{name}={each if isinstance(each, str) else ','.join(each)}" for name, each in last.events.items()
    )
    ago = duration(evidence.now - last.at)
    key = f" [{last.key}]" if last.key else ""
    return f"last {when(last.at)} ({ago} ago){key}: {events}, action {last.action}; {_outcome(last)}"


def _outcome(last: Firing) -> str:
    invoked = last.invoked
    if invoked is None:
        return "no invocation found"
    tried = f"attempt {invoked.attempt} {invoked.outcome}"
    return tried + "".join(f", {each}" for each in (invoked.status, invoked.error) if each)


def _waiting(evidence: Evidence, trigger: TriggerEvidence) -> str:
    actions = _number(trigger.waiting.count, "action")
    since = duration(evidence.now - (trigger.waiting_since or evidence.now))
    are = "is" if trigger.waiting.count == 1 else "are"
    return f"{actions} {are} not finished, the oldest since {since}: {trigger.waiting.example}"


# --- the answer -----------------------------------------------------------------------------------------------------


def _answer(evidence: Evidence, trigger: TriggerEvidence) -> Answer:
    answers = (
        _not_at_work(evidence, trigger),
        _other_version(evidence),
        _is_paused(evidence, trigger),
        _fired_in_vain(evidence, trigger),
        _waits(evidence, trigger),
        _let_go(trigger),
        _nothing_came(evidence, trigger),
    )
    return next((answer for answer in answers if answer is not None), _fired(evidence, trigger))


def _not_at_work(evidence: Evidence, trigger: TriggerEvidence) -> Answer | None:
    stages = _stages(evidence, trigger)
    idle = [stage.stage for stage in stages if not stage.replicas]
    if idle:
        missing = "no replica" if len(idle) == len(stages) else f"no replica that does {' or '.join(idle)}"
        return Answer("not-running", f"The sensor does not run: there is {missing}.")
    for stage in (each for each in stages if each.stage != Stage.INVOKE):
        late = stage.oldest is not None and evidence.now - stage.oldest > FAR_BEHIND_MS
        if late or stage.behind > FAR_BEHIND_RECORDS:
            age = duration(evidence.now - (stage.oldest or evidence.now))
            return Answer(
                "lagging",
                f"The {stage.stage} stage is {_number(stage.behind, 'record')} behind, and the oldest of them has "
                f"waited for {age}.",
            )
    return None


def _other_version(evidence: Evidence) -> Answer | None:
    if evidence.other_generation is None:
        return None
    return Answer(
        "other-version",
        f"What was at work last (generation {evidence.other_generation}) is another version of the sensor than this "
        "manifest: look whether it is deployed.",
    )


def _is_paused(evidence: Evidence, trigger: TriggerEvidence) -> Answer | None:
    if trigger.paused_since is None:
        return None
    since = duration(evidence.now - trigger.paused_since)
    waiting = trigger.dead_letters.get(PAUSED, Tally()).count
    kept = _number(waiting, "action")
    return Answer("paused", f"It is paused since {since}. Kept for `eventbus resume`: {kept}.")


def _fired_in_vain(evidence: Evidence, trigger: TriggerEvidence) -> Answer | None:
    if trigger.waiting.count:
        return Answer("not-invoked", f"It has fired, and {_waiting(evidence, trigger)}.")
    last = trigger.last
    if last is not None and last.invoked is not None and last.invoked.outcome in (DEAD_LETTERED, FAILED, LOST):
        ago = duration(evidence.now - last.at)
        return Answer("action-failed", f"It fired {ago} ago, and its action {last.action} failed: {_outcome(last)}.")
    return None


def _waits(evidence: Evidence, trigger: TriggerEvidence) -> Answer | None:
    """The slot that has waited longest stands for all."""
    holding = [state for state in trigger.held if state.held]
    if not holding:
        return None
    state = min(holding, key=lambda state: min(each.since for each in state.held))
    wanted = [name.split()[0] for name in state.missing[0]] if state.missing else []
    whose = f"With the key {state.key} it" if state.key else "It"
    holds = ", ".join(sorted({each.dependency for each in state.held}))
    since = duration(evidence.now - min(each.since for each in state.held))
    code, why = _why_missing(evidence, trigger, wanted, state.key)
    waits_for = " and ".join(state.missing[0]) if state.missing else "the next event"
    return Answer(code, f"{whose} holds {holds} since {since} and waits for {waits_for}: {why}.")


def _let_go(trigger: TriggerEvidence) -> Answer | None:
    reason = trigger.recent.in_vain
    if reason is None:
        return None
    return Answer(reason, f"The last event {_LET_GO.get(reason, reason)}: {trigger.recent.let_go[reason].example}.")


def _nothing_came(evidence: Evidence, trigger: TriggerEvidence) -> Answer | None:
    if any(tally.count for tally in trigger.recent.matched.values()):
        return None
    code, why = _why_missing(evidence, trigger, sorted(trigger.asks_for))
    return Answer(code, f"It has got no event of late: {why}.")


def _fired(evidence: Evidence, trigger: TriggerEvidence) -> Answer:
    last = trigger.last
    if last is None:
        return Answer("unknown", "Events have matched, none is held now, and no firing is found: look further back.")
    ago = duration(evidence.now - last.at)
    code = "fired" if last.invoked is not None and last.invoked.outcome == SUCCEEDED else "fired-unconfirmed"
    return Answer(code, f"It fired {ago} ago, and nothing has come since: {_outcome(last)}.")


def _why_missing(evidence: Evidence, trigger: TriggerEvidence, wanted: Sequence[str], key: str = "") -> tuple[str, str]:
    """Why there is no event for these dependencies, of this key if there is one."""
    recent = trigger.recent
    for dependency in wanted:
        for reason, tally in recent.filtered.get(dependency, {}).items():
            code = "no-key" if reason == CORRELATE else "filtered"
            return code, f"{_number(tally.count, 'event')} for {dependency} filtered by {reason} ({tally.text})"
    for miss in recent.near:
        if miss.meant is not None and miss.meant in wanted:
            came = f"{_number(miss.count, 'event')} came as {miss.source}/{miss.name}"
            return "near-miss", f"{came}, and {miss.meant} asks for {_named(trigger, miss.meant)}"
    if recent.without_key.count:
        return "no-key", _without_key(recent.without_key)
    return _why_absent(evidence, trigger, wanted, key)


def _why_absent(evidence: Evidence, trigger: TriggerEvidence, wanted: Sequence[str], key: str) -> tuple[str, str]:
    recent = trigger.recent
    for dependency in wanted:
        last = recent.matched.get(dependency) or recent.other_keys.get(dependency)
        if last is not None and last.text != key:
            return "other-key", f"{dependency} came last with another key, {last.text} ({last.example})"
        if last is not None and recent.in_vain in recent.let_go:
            gone = _LET_GO.get(recent.in_vain, recent.in_vain)
            return recent.in_vain, f"{recent.let_go[recent.in_vain].example} {gone}"
        if last is not None:
            return "used", f"the last {dependency}, {last.example}, is used or let go already"
    asked = " or ".join(_named(trigger, name) for name in wanted)
    return "absent", f"there is no {asked} among the last {_number(evidence.events, 'event')}"


def _named(trigger: TriggerEvidence, dependency: str) -> str:
    return "/".join(trigger.asks_for[dependency])


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
