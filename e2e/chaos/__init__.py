"""Three real brokers, sensor replicas as processes, a real HTTP target; faults of every kind; then a verdict.

__main__   `make chaos`: failover first, then the storm, then build/chaos.json
storm      one storm, from the first event to everything at rest
processes  a storm of processes (`e2e.podchaos` has one of pods)
faults     which fault comes when, from a seed
fleet      the replicas and what was done to them
points     where inside a commit a replica can be made to kill itself
replica    the program of a replica: `eventbus` with such points
brokers    the three brokers, one of which may be dead
sink       the target of the actions, with a ledger
traffic    the events
witness    a consumer that reads the actions while all this happens
evidence   what is known in the end
verdict    what that means
failover   how long a killed replica's work lies about
held       what a restart reads after an event was held for long (`make held-restart`)
"""
