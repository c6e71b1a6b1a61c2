"""Pods of a Sensor, of EventSources and of the controller are deleted on a real cluster while events flow; then the
verdict of a storm.

__main__    `make podchaos`: the standard run, then build/podchaos.json
run         one run, from the first pod to the verdict
scene       everything that a storm needs, on a cluster
resources   what is applied to the cluster
pods        the pods, what was done to them, and what they said
deletions   which pod is deleted when, from a seed
senders     events that go in through pods, and whether every one that was taken is on the bus
callers     which pods have called the target
ticks       whether an EventSource that elects its leader has told every tick once

Traffic, target, witness, checks and report are those of `e2e.chaos`. The controller is installed as
`deploy/namespaced` says; the broker is outside the cluster.
"""
