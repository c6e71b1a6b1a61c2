"""Single records outside transactions: what event sources and `send` write."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from eventbus.errors import LogError, RetriableError, UnknownOutcome
from eventbus.kafka import codes
from eventbus.kafka.complaints import Complaints, connect
from eventbus.kafka.config import Settings, make_client
from eventbus.kafka.errors import kafka_error, log_error, refused_record
from eventbus.ports import Output, Position


class KafkaPublisher:
    """`eventbus.ports.Publisher` with confluent-kafka."""

    def __init__(self, settings: Settings) -> None:
        complaints = Complaints(settings)
        self._client = make_client(Producer, settings.publisher() | {"error_cb": complaints.note})
        self._where = f"on {settings.bootstrap_servers}"
        connect(self._client, complaints, self._where)

    def send(self, output: Output, done: Callable[[LogError | None, Position | None], None]) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                done(None, Position(output.topic, output.partition, message.offset() or 0))
            else:
                done(self._error(error, output), None)

        try:
            self._client.produce(
                output.topic, output.value, output.key, output.partition, delivered, headers=list(output.headers)
            )
        except BufferError:
            raise RetriableError(f"Kafka, writing {self._where}: the queue of unsent records is full") from None
        except KafkaException as exception:
            raise self._error(kafka_error(exception), output) from None
        self._client.poll(0)

    def serve(self, timeout: float) -> None:
        self._client.poll(timeout)

    def flush(self, timeout: float) -> int:
        return self._client.flush(timeout)

    def close(self) -> None:
        self._client.purge(blocking=False)
        del self._client

    def _error(self, error: KafkaError, output: Output) -> LogError:
        if error.code() in codes.REFUSED_RECORD:
            return refused_record(error, output.topic, output.partition, index=0)
        doing = f"writing to {output.topic} {self._where}"
        if error.code() in codes.LOST_ANSWER:
            return UnknownOutcome(f"Kafka, {doing}: no answer in time; the record may or may not have been written")
        return log_error(error, doing)
