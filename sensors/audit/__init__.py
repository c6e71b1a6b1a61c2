"""Was every promise kept? Pure functions over what a sensor has left behind.

The simulator, the chaos runs and the demo are judged by the same functions. Each returns violations of one of these
invariants, and each violation names the event, the trigger, the record and the replica it is about.

=== ==================================================================================================================
I1  Per trigger and key the actions are those of a machine that never crashes, in its order.
I2  An event is used at most once per trigger.
I3  Nothing is lost: what was matched is used, held, superseded or in the dead letters.
I4  What is held would be restored, and nothing else: no commit is past an event that is held in the log.
I5  The metadata of a commit is within its limit and says the same when it is read and written again.
I6  No commit undoes another: one owner at a time.
I7  Every action is invoked as its mode allows, or is in the dead letters.
I8  The same seed does the same (the simulator's own test).
I9  After the faults everything comes to rest: no lag is left.
I10 A restart replays no more than the horizon.
=== ==================================================================================================================
"""
