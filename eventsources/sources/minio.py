"""Events of buckets of MinIO: what is told to a listener while it listens.

There is nothing to acknowledge. What happens while nobody listens is not told, nor what happens faster than it can be
delivered, and what was on its way when a delivery failed is gone: who cannot bear a loss lets MinIO notify a queue or a
webhook, and listens there. An event's id is made of the object, its version, MinIO's sequencer and what happened to it.

As with argo-events, `filter` chooses by the beginning and the end of an object's key. Here it may have an `expression`,
too, as the filter of every other source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote
from uuid import uuid4

import msgspec
from pydantic import AfterValidator

from eventsources.base import Context, EventFilter, SourceSpec, Stop, Told, Unusable
from sensors.actions.tls import Tls
from sensors.secrets import SecretKeySelector
from sensors.spec.base import Flaw, SpecModel
from sensors.spec.fields import Bool, Text

if TYPE_CHECKING:
    from eventsources.sources.minio_listener import MinioListener, Query

_ENDPOINT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_EVENT = re.compile(r"s3:[A-Za-z]+(:(\*|[A-Za-z]+))*")


def _endpoint(text: str) -> str:
    if not _ENDPOINT.fullmatch(text):
        raise ValueError("must be the server as `host:port`, without `https://`; `insecure: true` is plain HTTP")
    if ".amazonaws.com" in text:
        raise ValueError("must be a MinIO: Amazon's S3 has no listeners; let it notify a queue, and take that by `sqs`")
    return text


def _bucket(text: str) -> str:
    if not _BUCKET.fullmatch(text):
        raise ValueError("must be the name of a bucket: 3 to 63 lower-case letters, digits, `-` and `.`")
    return text


def _events(texts: tuple[str, ...]) -> tuple[str, ...]:
    if not texts or not all(map(_EVENT.fullmatch, texts)):
        raise ValueError("must be one or more of MinIO's events, such as `s3:ObjectCreated:*`")
    return texts


class Bucket(SpecModel):
    """Which one."""

    name: Annotated[Text, AfterValidator(_bucket)]
    key: Text = ""
    """argo-events has it and does not look at it here, and neither do we: `filter.prefix` chooses objects."""


class ObjectFilter(EventFilter):
    """Which objects, and which of the events are produced at all."""

    expression: Text = ""
    prefix: Text = ""
    """How the key of an object begins."""
    suffix: Text = ""
    """How it ends."""


class MinioSpec(SourceSpec):
    """Something happens to an object in a bucket."""

    endpoint: Annotated[Text, AfterValidator(_endpoint)]
    """The server, `host:port`."""
    bucket: Bucket
    region: Text = ""
    """Of the bucket; without it, the server is asked."""
    insecure: Bool = False
    """Plain HTTP: keys are not sent, but all that is told can be read on the way."""
    accessKey: SecretKeySelector
    secretKey: SecretKeySelector
    caCertificate: SecretKeySelector | None = None
    """The certificate authorities to trust instead of the system's, as PEM."""
    events: Annotated[tuple[Text, ...], AfterValidator(_events)]
    """What to be told of, such as `s3:ObjectCreated:*`."""
    filter: ObjectFilter | None = None

    def advice(self) -> Iterable[Flaw]:
        if self.bucket.key:
            yield Flaw(("bucket", "key"), "`key` is not used: `filter.prefix` chooses objects")
        if self.insecure and self.caCertificate is not None:
            yield Flaw(("caCertificate",), "`caCertificate` is not used with `insecure`, which is plain HTTP")


class Named(msgspec.Struct, frozen=True):
    """A bucket."""

    name: str


class Item(msgspec.Struct, frozen=True):
    """An object, if it is about one."""

    key: str = ""
    versionId: str = ""
    sequencer: str = ""


class Coordinates(msgspec.Struct, frozen=True):
    """Where it happened."""

    bucket: Named
    object: Item = Item()


class Record(msgspec.Struct, frozen=True):
    """What of a record its event's id is made of."""

    eventName: str
    s3: Coordinates

    @property
    def id(self) -> str:
        item = self.s3.object
        return f"{self.s3.bucket.name} {quote(item.key)} {item.versionId} {item.sequencer} {self.eventName}"


class Notification(msgspec.Struct, frozen=True):
    """One line of what MinIO tells."""

    records: list[msgspec.Raw] | None = msgspec.field(default=None, name="Records")


class MinioSource:
    """Listens, and delivers."""

    def __init__(self, spec: MinioSpec) -> None:
        self._spec = spec

    def run(self, context: Context, stop: Stop) -> None:
        spec = self._spec
        chosen = spec.filter or ObjectFilter()
        query: Query = {"prefix": chosen.prefix, "suffix": chosen.suffix, "events": list(spec.events)}
        with closing(self._listener().listen(spec.bucket.name, query, stop)) as portions:
            for lines in portions:
                context.deliver([told for line in lines for told in self._read(context, line)])

    def _listener(self) -> MinioListener:
        from eventsources.sources.minio_listener import MinioListener  # noqa: PLC0415 - an optional package

        spec = self._spec
        tls = None
        if not spec.insecure:
            trust = Tls(caCertSecret=spec.caCertificate)
            tls = trust.context(trust.secrets())
        keys = spec.accessKey.read(), spec.secretKey.read()
        return MinioListener(spec.endpoint, keys, tls, spec.region)

    def _read(self, context: Context, line: bytes) -> Iterator[Told]:
        try:
            records = msgspec.json.decode(line, type=Notification).records or []
            made = [(msgspec.json.decode(raw, type=Record), raw) for raw in records]
        except (msgspec.DecodeError, UnicodeDecodeError):
            yield Unusable(uuid4().hex, "the notification cannot be read", line)
            return
        for record, raw in made:
            yield context.identity.event(record.id, self._spec.described({"notification": [raw]}))
