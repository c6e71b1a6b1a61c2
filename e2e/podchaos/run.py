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
from e2e.podchaos.deletions import Options
from e2e.podchaos.scene import scene_of_pods
from e2e.podchaos.ticks import tick_findings, ticks_of
from sensors.audit.verdict import Verdict

LEAST_TICKS = 20


def run(options: Options, cluster: Cluster, directory: Path, console: Console) -> tuple[dict[str, object], Verdict]:
    """The directory gets the logs of pods and controller and, where something is found, what helps to look into it."""
    began = time.monotonic()
    console.print(f"seed {options.seed}")
    with scene_of_pods(options, cluster, directory) as (scene, pods), Teller(console) as teller:
        aftermath = asyncio.run(_storm(options, scene, teller))
    evidence = msgspec.structs.replace(aftermath.evidence, calls=pods.attributed(aftermath.evidence.calls))
    aftermath = msgspec.structs.replace(aftermath, evidence=evidence)
    ticks = ticks_of(evidence.events)
    complaints = [*aftermath.unexplained, *pods.mistaken(), *tick_findings(ticks, LEAST_TICKS)]
    verdict = verdict_on(evidence, aftermath.concurrent, complaints)
    if not verdict.clean:
        keep(evidence, directory)
    report = {
        "seed": options.seed,
        **summary(aftermath, verdict),
        "ticks": len(ticks),
        "seconds": round(time.monotonic() - began, 1),
        "replicas": options.replicas,
        "dependencies": options.dependencies,
    }
    return report, verdict


async def _storm(options: Options, scene: Scene, teller: Teller) -> Aftermath:
    return await Storm(scene, rate=options.rate, seed=options.seed, tell=teller.tell).run()
