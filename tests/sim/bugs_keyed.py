"""Planted bugs in stateful triggers, and in what operators may want."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

import sensors.runner.stages
from eventbus.formats import ActionFact
from eventbus.metadata import JoinCommit
from eventbus.ports import Output, Record
from eventbus.stateformats import FiredKey, Firing, HeldKey, SeenKey
from sensors.invoke import Invoker
from sensors.join import JoinPartition
from sensors.keyed import Arrival, Changes, Gone, Kept, KeyedSlot, Memory
from sensors.keyedslots import KeyedSlots, Stray
from sensors.match import Matcher
from sensors.plan import TriggerPlan
from sensors.rules import Rules
from tests.sim.planting import mutant


@mutant(KeyedSlots, "load")
def firings_are_not_restored(original: Any, slots: KeyedSlots, key: Memory, record: Record) -> bool:
    return not isinstance(key, FiredKey) and original(slots, key, record)


@mutant(KeyedSlots, "load")
def what_was_seen_is_not_restored(original: Any, slots: KeyedSlots, key: Memory, record: Record) -> bool:
    return not isinstance(key, SeenKey) and original(slots, key, record)


@mutant(KeyedSlots, "load")
def nobody_knows_what_is_stored(original: Any, slots: KeyedSlots, key: Memory, record: Record) -> bool:
    loaded: bool = original(slots, key, record)
    slots._stored.discard(key)
    return loaded


@mutant(KeyedSlots, "load")
def a_held_event_arrives_again_when_it_is_restored(
    original: Any, slots: KeyedSlots, key: Memory, record: Record
) -> bool:
    loaded: bool = original(slots, key, record)
    if loaded and isinstance(key, HeldKey):
        events = slots._slot(key).held[key.dependency]
        events[-1] = msgspec.structs.replace(events[-1], clock=record.timestamp + 3_600_000)
    return loaded


@mutant(KeyedSlots, "loaded")
def what_no_longer_fits_vanishes(original: Any, slots: KeyedSlots) -> list[Stray]:
    original(slots)
    return []


@mutant(KeyedSlots, "adopt")
def what_a_plain_trigger_held_is_not_written(original: Any, slots: KeyedSlots, *arguments: Any, **more: Any) -> None:
    changes, slots._changes = slots._changes, {}
    original(slots, *arguments, **more)
    slots._changes = changes


@mutant(sensors.runner.stages, "decode_join")
def the_clock_starts_anew(original: Any, offset: int, metadata: str) -> JoinCommit:
    commit: JoinCommit = original(offset, metadata)
    return msgspec.structs.replace(commit, clock=0)


@mutant(Matcher, "_by_key")
def keys_are_not_told_apart(_original: Any, _matcher: Matcher, _trigger: Any, names: Any, *_: Any) -> Mapping[str, Any]:
    return {"": names}


@mutant(Matcher, "_by_key")
def only_the_first_key_of_an_event(original: Any, matcher: Matcher, *arguments: Any) -> Mapping[str, Any]:
    return dict(list(original(matcher, *arguments).items())[:1])


@mutant(KeyedSlot, "keep")
def the_last_to_arrive_is_the_newest(original: Any, slot: KeyedSlot, dependency: str, *arguments: Any) -> None:
    original(slot, dependency, *arguments)
    slot.held[dependency].sort(key=lambda kept: kept.event.offset or 0)


@mutant(KeyedSlot, "_drop")
def what_is_let_go_stays_in_the_state(
    original: Any, slot: KeyedSlot, dependency: str, gone: list[Kept], changes: Changes
) -> None:
    before = dict(changes)
    original(slot, dependency, gone, changes)
    changes.clear()
    changes.update(before)


@mutant(KeyedSlot, "_remember")
def firings_are_not_written(_original: Any, slot: KeyedSlot, firings: tuple[Firing, ...], _changes: Changes) -> None:
    slot.firings = firings


@mutant(KeyedSlot, "_fires")
def it_fires_as_often_as_it_likes(original: Any, slot: KeyedSlot, *arguments: Any) -> bool:
    original(slot, *arguments)
    return True


@mutant(KeyedSlot, "arrive")
def what_was_seen_counts_again(original: Any, slot: KeyedSlot, rules: Rules, *arguments: Any, **more: Any) -> Arrival:
    arrival: Arrival = original(slot, msgspec.structs.replace(rules, dedupe=None), *arguments, **more)
    return arrival


@mutant(KeyedSlot, "_drop_separated")
def events_are_never_too_far_apart(_original: Any, _slot: KeyedSlot, *_: Any) -> list[Gone]:
    return []


@mutant(KeyedSlot, "forget")
def nothing_is_ever_forgotten(_original: Any, _slot: KeyedSlot, *_: Any) -> list[Gone]:
    return []


@mutant(KeyedSlot, "forget")
def it_is_forgotten_too_early(original: Any, slot: KeyedSlot, rules: Rules, clock: int, changes: Changes) -> list[Gone]:
    gone: list[Gone] = original(slot, rules, clock + 1_000, changes)
    return gone


@mutant(KeyedSlot, "trim")
def more_events_are_kept_than_needed(_original: Any, _slot: KeyedSlot, *_: Any) -> list[Gone]:
    return []


@mutant(Rules, "complete")
def one_event_is_enough(_original: Any, _rules: Rules, held: Mapping[str, object]) -> set[str]:
    return set(held)


@mutant(KeyedSlots, "arrive")
def all_keys_share_a_slot(
    original: Any, slots: KeyedSlots, trigger: TriggerPlan, _key: str, *arguments: Any
) -> Arrival:
    arrival: Arrival = original(slots, trigger, "", *arguments)
    return arrival


# --- what operators want --------------------------------------------------------------------------------------------


@mutant(JoinPartition, "_flush")
def a_flush_is_not_obeyed(_original: Any, _join: JoinPartition, _record: Record, _outputs: list[Output]) -> None:
    pass


@mutant(Invoker, "_withhold")
def what_is_withheld_vanishes(_original: Any, _invoker: Invoker, home: Any, record: Record, _fact: Any) -> None:
    home.ledger.finish(record.offset)
    home.changed = True


@mutant(Invoker, "_withhold")
def what_is_withheld_is_never_finished(
    original: Any, invoker: Invoker, home: Any, record: Record, fact: ActionFact
) -> None:
    original(invoker, home, record, fact)
    home.ledger.reopen(record.offset)
