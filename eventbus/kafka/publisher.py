"""Single records outside transactions: what event sources and `send` write."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from eventbus.errors import LogError, RetriableError, UnknownOutcome
from eventbus.kafka import codes
from eventbus.kafka.complaints import Complaints, connect
from eventbus.kafka.config import Settings, make_client
from eventbus.kafka.errors import kafka_error, log_error, refused_record
from eventbus.kafka.lasting import LastingProducer
from eventbus.ports import Output, Position


class KafkaPublisher:
    """`eventbus.ports.Publisher` with confluent-kafka. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._where = f"on {settings.bootstrap_servers}"
        complaints = Complaints(settings)
        self._producer = LastingProducer(
            lambda: make_client(Producer, settings.publisher() | {"error_cb": complaints.note})
        )
        connect(self._producer.client, complaints, self._where)

    def send(self, output: Output, done: Callable[[LogError | None, Position | None], None]) -> None:
        def told(error: KafkaError | None, message: Message | None) -> None:
            if error is not None:
                done(self._unknown(error) if message is None else self._error(error, output), None)
            elif message is not None:
                done(None, Position(output.topic, output.partition, message.offset() or 0))

        try:
            self._producer.produce(
                told,
                output.topic,
                value=output.value,
                key=output.key,
                partition=output.partition,
                headers=list(output.headers),
            )
        except BufferError:
            raise RetriableError(f"Kafka, writing {self._where}: the queue of unsent records is full") from None
        except KafkaException as exception:
            raise self._error(kafka_error(exception), output) from None
        self._producer.poll(0)

    def serve(self, timeout: float) -> None:
        self._producer.poll(timeout)

    def flush(self, timeout: float) -> int:
        return self._producer.flush(timeout)

    def close(self) -> None:
        self._producer.close()

    def _unknown(self, error: KafkaError) -> UnknownOutcome:
        why = f"the client has given up ({error.str()})"
        return UnknownOutcome(f"Kafka, writing {self._where}: {why}; the record may or may not have been written")

    def _error(self, error: KafkaError, output: Output) -> LogError:
        if error.code() in codes.REFUSED_RECORD:
            return refused_record(error, output.topic, output.partition, index=0)
        doing = f"writing to {output.topic} {self._where}"
        if error.code() in codes.LOST_ANSWER:
            return UnknownOutcome(f"Kafka, {doing}: no answer in time; the record may or may not have been written")
        return log_error(error, doing)
