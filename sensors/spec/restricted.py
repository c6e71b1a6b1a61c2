"""What a pod template may not ask for: whoever may write a Sensor must not get a pod that they could not have made.

It is Kubernetes' own standard `restricted` (Pod Security Standards). A cluster can enforce it for namespaces; here it
holds in any case, and is told before there is a pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sensors.spec.base import Flaw, Path, get

_VOLUMES = frozenset(
    ("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret")
)
_MUST_NOT: Mapping[str, tuple[Any, str]] = {
    "privileged": (True, "a container must not be privileged"),
    "allowPrivilegeEscalation": (True, "a process must not get more rights than its parent"),
    "runAsNonRoot": (False, "containers must not run as root"),
    "runAsUser": (0, "containers must not run as root"),
}
_ONLY_DEFAULT = ("procMount", "seLinuxOptions", "windowsOptions", "sysctls", "appArmorProfile")
_SECCOMP = ("RuntimeDefault", "Localhost")


def template_flaws(template: Any) -> Iterator[Flaw]:
    """What is wrong, where in a pod template as it is written."""
    volumes = get(template, "volumes")
    for index, volume in enumerate(volumes if isinstance(volumes, list | tuple) else ()):
        foreign = [kind for kind in volume if kind != "name" and kind not in _VOLUMES] if _is_map(volume) else []
        if foreign:
            allowed = ", ".join(f"`{kind}`" for kind in sorted(_VOLUMES))
            message = f"`{foreign[0]}` volumes are not allowed; these are: {allowed}"
            yield Flaw(("volumes", index, foreign[0]), message, about_key=True)
    for path in (("securityContext",), ("container", "securityContext")):
        yield from _context_flaws(path, get(template, *path))


def _context_flaws(path: Path, context: Any) -> Iterator[Flaw]:
    for field, (forbidden, reason) in _MUST_NOT.items():
        value = get(context, field)
        if value == forbidden and type(value) is type(forbidden):
            yield Flaw((*path, field), f"`{field}: {str(forbidden).lower()}` is not allowed: {reason}")
    if get(context, "capabilities", "add"):
        yield Flaw((*path, "capabilities", "add"), "capabilities cannot be added")
    profile = get(context, "seccompProfile", "type")
    if profile is not None and profile not in _SECCOMP:
        yield Flaw((*path, "seccompProfile", "type"), f"`{profile}` is not allowed; these are: {', '.join(_SECCOMP)}")
    for field in _ONLY_DEFAULT:
        if get(context, field):
            yield Flaw((*path, field), f"`{field}` cannot be set", about_key=True)


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping)
