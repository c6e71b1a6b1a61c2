"""What a manifest says about AWS: where, and who we are there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator

from sensors.secrets import Secret, SecretKeySelector
from sensors.spec.base import Flaw, SpecModel, get
from sensors.spec.fields import Text

_REGION = re.compile(r"[a-z0-9-]{1,63}")
_ROLE = re.compile(r"arn:[a-z0-9-]+:iam::\d{12}:role/[A-Za-z0-9+=,.@_/-]+")

Keys: TypeAlias = tuple[Secret, ...]
"""The access key, the secret key, and the token of a session if there is one."""


def _valid_region(text: str) -> str:
    if not _REGION.fullmatch(text):
        raise ValueError("must be the name of a region, for instance `eu-west-1`")
    return text


def _valid_role(text: str) -> str:
    if text and not _ROLE.fullmatch(text):
        raise ValueError("must be the ARN of a role: `arn:aws:iam::ACCOUNT:role/NAME`")
    return text


class AwsSpec(SpecModel):
    """Who we are at AWS."""

    region: Annotated[Text, AfterValidator(_valid_region)]
    """Which of AWS's regions, such as `eu-west-1`."""
    accessKey: SecretKeySelector | None = None
    """The secret with the access key. Without it: the credentials of the machine or the service account."""
    secretKey: SecretKeySelector | None = None
    """The secret with the secret key that belongs to it."""
    roleARN: Annotated[Text, AfterValidator(_valid_role)] = ""
    """The role to assume."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        yield from super().flaws(data)
        for key, other in (("accessKey", "secretKey"), ("secretKey", "accessKey")):
            if isinstance(data, Mapping) and get(data, key) is not None and get(data, other) is None:
                yield Flaw((key,), f"`{key}` needs `{other}`", about_key=True)

    def keys(self) -> Keys | None:
        """Raises `ConfigError` when a secret is not there."""
        if self.accessKey is None or self.secretKey is None:
            return None
        return self.accessKey.read(), self.secretKey.read()
