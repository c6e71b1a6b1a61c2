"""The simulator: the real core and the real runner on the in-memory log, driven by one seed.

Everything that happens is one of the decisions of `Dice`, so a seed replays bit by bit. `python -m tests.sim --help`
runs many seeds; `python -m tests.sim.planted` shows that planted bugs are caught.
"""
