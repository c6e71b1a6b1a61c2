"""Events from a queue of Amazon SQS: at least once, because a message is deleted after its event is delivered.

All replicas read, and SQS hides from the others what one of them has read, for as long as the queue's visibility
timeout says. Should a delivery take longer than that, or fail, the message comes again, maybe to another replica; its
event has the same id, which is SQS's own for the message.

As with argo-events, the body is in base64; with `jsonBody` it is the JSON itself, and so are the notifications of S3.
With `dlq`, what is no JSON then is left to the queue, which puts what was read too often into its dead-letter queue.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, StrictInt

from eventbus.events import Event
from eventsources.base import Context, SourceSpec, Stop, Told, Unusable
from eventsources.sources.messages import NOT_JSON, as_body
from sensors.actions.aws import AwsSpec, Keys
from sensors.secrets import SecretKeySelector
from sensors.spec.base import Flaw, get
from sensors.spec.fields import Bool, Text

if TYPE_CHECKING:
    from eventsources.sources.sqs_queue import Message, Queue

_DEFAULT_WAIT = 3
_QUEUE = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")
_ACCOUNT = re.compile(r"(\d{12})?")
_ENDPOINT = re.compile(r"(https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(:\d{1,5})?(/[!-~]*)?)?")

log = logging.getLogger("eventbus.source")


def _queue(text: str) -> str:
    if not _QUEUE.fullmatch(text):
        raise ValueError("must be the name of a queue, not its URL or ARN")
    return text


def _account(text: str) -> str:
    if not _ACCOUNT.fullmatch(text):
        raise ValueError("must be the 12 digits of an account, as text")
    return text


def _endpoint(text: str) -> str:
    if not _ENDPOINT.fullmatch(text):
        raise ValueError("must be a URL such as `https://sqs.example.org`")
    return text


class SqsSpec(AwsSpec, SourceSpec):
    """Messages of a queue."""

    queue: Annotated[Text, AfterValidator(_queue)]
    """Its name."""
    queueAccountId: Annotated[Text, AfterValidator(_account)] = ""
    """The account that has the queue, if it is not ours."""
    waitTimeSeconds: Annotated[StrictInt, Field(ge=0, le=20)] = 0
    """How long one question waits for messages, and stopping takes at the most; 0 is 3."""
    jsonBody: Bool = False
    """Messages are JSON."""
    dlq: Bool = False
    """The queue has a dead-letter queue for what is no event: it is not deleted."""
    endpoint: Annotated[Text, AfterValidator(_endpoint)] = ""
    """Where SQS is, if it is not AWS's own."""
    sessionToken: SecretKeySelector | None = None
    """The secret with the token that belongs to keys which expire. It is read again when they have expired."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        yield from super().flaws(data)
        if isinstance(data, Mapping) and get(data, "sessionToken") is not None and get(data, "accessKey") is None:
            yield Flaw(("sessionToken",), "`sessionToken` needs `accessKey`", about_key=True)

    def keys(self) -> Keys | None:
        keys = super().keys()
        return keys if keys is None or self.sessionToken is None else (*keys, self.sessionToken.read())


class SqsSource:
    """Reads, delivers, deletes."""

    def __init__(self, spec: SqsSpec) -> None:
        self._spec = spec

    def run(self, context: Context, stop: Stop) -> None:
        from eventsources.sources.sqs_queue import opened  # noqa: PLC0415 - an optional package

        spec = self._spec
        with opened(spec, spec.keys(), spec.waitTimeSeconds or _DEFAULT_WAIT) as queue:
            while not stop.is_set():
                self._settle(context, queue, queue.receive())

    def _settle(self, context: Context, queue: Queue, messages: list[Message]) -> None:
        made = [(message, self._told(context, message)) for message in messages]
        taken = [(message, told) for message, told in made if isinstance(told, Event) or not self._spec.dlq]
        if taken:
            context.deliver([told for _, told in taken])
            queue.delete([message for message, _ in taken], context.identity)

    def _told(self, context: Context, message: Message) -> Told:
        text = message["Body"].encode(errors="replace")
        body = as_body(text, json=self._spec.jsonBody)
        if body is None:
            if self._spec.dlq:
                left = "%s: the message `%s` is not JSON: left to the dead-letter queue of `%s`"
                log.warning(left, context.identity, message["MessageId"], self._spec.queue)
            return Unusable(message["MessageId"], NOT_JSON, text)
        data = {
            "messageId": message["MessageId"],
            "messageAttributes": message.get("MessageAttributes", {}),
            "body": body,
        }
        return context.identity.event(message["MessageId"], self._spec.described(data))
