"""A whole run: pods are deleted while events flow, and the verdict is spoken."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
from rich.console import Console

from e2e.chaos.evidence import keep
from e2e.chaos.report import Teller, summary
from e2e.chaos.storm import Aftermath, Scene, Storm
from e2e.chaos.verdict import verdict_on
from e2e.cluster import Cluster
from e2e.podchaos.callers import Callers
from e2e.podchaos.deletions import Options
from e2e.podchaos.resources import SENSOR
from e2e.podchaos.scene import scene_of_pods
from e2e.podchaos.senders import sending_findings, sent
from e2e.podchaos.ticks import tick_findings, ticks_of
from sensors.audit.verdict import Verdict

LEAST_TICKS = 20


def run(options: Options, cluster: Cluster, directory: Path, console: Console) -> tuple[dict[str, object], Verdict]:
    """The directory gets the logs of all pods and, where something is found, what helps to look into it."""
    began = time.monotonic()
    console.print(f"seed {options.seed}")
    with scene_of_pods(options, cluster, directory) as (scene, cast), Teller(console) as teller:
        aftermath = asyncio.run(_storm(options, scene, teller))
    pods, senders = cast
    callers = Callers(pods.of(SENSOR), aftermath.evidence.calls)
    evidence = msgspec.structs.replace(aftermath.evidence, calls=callers.attributed())
    aftermath = msgspec.structs.replace(aftermath, evidence=evidence)
    ticks, received = ticks_of(evidence.events), sent(evidence.events)
    complaints = [
        *aftermath.unexplained,
        *callers.mistaken(),
        *tick_findings(ticks, LEAST_TICKS),
        *sending_findings(received, senders.attempts, senders.refused),
    ]
    verdict = verdict_on(evidence, aftermath.concurrent, complaints)
    unexcused = callers.unexcused(verdict.unrecorded, evidence.mishaps)
    verdict = msgspec.structs.replace(verdict, violations=[*verdict.violations, *unexcused])
    if not verdict.clean:
        keep(evidence, directory)
    report = {
        "seed": options.seed,
        **summary(aftermath, verdict),
        "deletions_at_work": pods.deletions_at_work(),
        "ticks": len(ticks),
        "sent": len(received),
        "sent_again": senders.attempts.total() - len(senders.attempts),
        "received_again": received.total() - len(received),
        "longest_mishap_seconds": max((mishap.ended - mishap.began for mishap in pods.mishaps), default=0) / 1000,
        "seconds": round(time.monotonic() - began, 1),
        "replicas": options.replicas,
        "dependencies": options.dependencies,
    }
    return report, verdict


async def _storm(options: Options, scene: Scene, teller: Teller) -> Aftermath:
    return await Storm(scene, rate=options.rate, seed=options.seed, tell=teller.tell).run()
