"""A queue of Amazon SQS. What has failed is the runner's to begin again."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import msgspec
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from eventsources.base import Identity, SourceError
from sensors.actions.aws import Keys
from sensors.actions.aws_session import answer_of, new_client
from sensors.actions.replies import excerpt

if TYPE_CHECKING:
    from eventsources.sources.sqs import SqsSpec

_MOST_AT_ONCE = 10
"""SQS gives no more."""
_SPARE_SECONDS = 10
"""How much later than it should an answer may come."""

log = logging.getLogger("eventbus.source")


class Message(TypedDict):
    """As botocore gives it."""

    MessageId: str
    ReceiptHandle: str
    Body: str
    MessageAttributes: NotRequired[dict[str, Any]]


class Found(TypedDict):
    """The answer to a question for the queue."""

    QueueUrl: str


class Received(TypedDict):
    """The answer to a question for messages."""

    Messages: NotRequired[list[Message]]


class Queue:
    """For one thread. What it raises is botocore's, or msgspec's where an answer is none."""

    def __init__(self, client: Any, spec: SqsSpec, wait_seconds: int) -> None:
        self._client = client
        self._wait = wait_seconds
        owner = {"QueueOwnerAWSAccountId": spec.queueAccountId} if spec.queueAccountId else {}
        found = client.get_queue_url(QueueName=spec.queue, **owner)
        self._url = msgspec.convert(found, Found)["QueueUrl"]

    def receive(self) -> list[Message]:
        """What is there, after a while at most."""
        answer = self._client.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=_MOST_AT_ONCE,
            WaitTimeSeconds=self._wait,
            MessageAttributeNames=["All"],
        )
        return msgspec.convert(answer, Received).get("Messages", [])

    def delete(self, messages: Sequence[Message], identity: Identity) -> None:
        """What cannot be deleted comes again."""
        entries = [
            {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]} for number, message in enumerate(messages)
        ]
        answer = self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
        for failed in answer.get("Failed", []):
            again = "%s: the message `%s` was delivered and cannot be deleted (%s); it may come again"
            log.warning(again, identity, messages[int(failed["Id"])]["MessageId"], excerpt(failed["Code"]))


@contextmanager
def opened(spec: SqsSpec, keys: Keys | None, wait_seconds: int) -> Iterator[Queue]:
    """Whatever goes wrong with the queue is a `SourceError`."""
    try:
        client = new_client(
            "sqs",
            spec.region,
            keys,
            spec.roleARN,
            read_seconds=wait_seconds + _SPARE_SECONDS,
            endpoint=spec.endpoint or None,
        )
        try:
            yield Queue(client, spec, wait_seconds)
        finally:
            client.close()
    except ClientError as error:
        raise SourceError(f"the queue `{spec.queue}`: {answer_of(error, keys)}") from None
    except msgspec.ValidationError as error:
        raise SourceError(f"the queue `{spec.queue}`: this is no answer of SQS: {error}") from None
    except (BotoCoreError, ResponseParserError) as error:
        raise SourceError(f"the queue `{spec.queue}`: AWS: {excerpt(str(error), keys or ())}") from None
