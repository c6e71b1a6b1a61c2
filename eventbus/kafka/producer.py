"""Transactions on Kafka: the hot path of every stage.

Theory of operation. `begin`, `produce`, `send_offsets`, `commit` map one to one to librdkafka's calls. Three things
are added. (1) What is retriable is retried here, within the life of the transaction, so the caller sees only what it
must react to. (2) Kafka refuses a record after `produce` has returned. The transaction fails because of it; whichever
call notices that looks up the record that is to blame. (3) A call whose answer does not come is an `UnknownOutcome`,
never a guess, and the client's last: librdkafka may still be at it. Aborting all the same hardly ever works (the log
has aborted it before), and is suspected of ending the process by an assertion about the transaction's state. The next
producer of this id finishes the transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from eventbus.clock import Deadline, SystemClock
from eventbus.errors import (
    AbortableError,
    FatalError,
    FencedError,
    LogError,
    RetriableError,
    UnknownOutcome,
)
from eventbus.kafka import codes
from eventbus.kafka.admin import KafkaAdmin
from eventbus.kafka.complaints import Complaints, connect
from eventbus.kafka.config import REQUEST_TIMEOUT, Settings, make_client
from eventbus.kafka.errors import kafka_error, log_error, refused_record, translated
from eventbus.kafka.patience import Impatient
from eventbus.kafka.refusals import Refusals
from eventbus.ports import Commit, Output

_RETRY_PAUSE = 0.005
_GRACE = 2.0
_QUEUE_PAUSE = 0.05
_REPORT_PAUSE = 0.05


class KafkaProducer:
    """`eventbus.ports.TransactionalProducer` with confluent-kafka."""

    def __init__(self, settings: Settings, admin: KafkaAdmin, transactional_id: str) -> None:
        self._settings = settings
        self._batches: dict[str, int] = {}
        """The limit to their size, once Kafka has refused one."""
        self._complaints = Complaints(settings)
        self._client = self._new_client(transactional_id)
        self._admin = admin
        self._id = transactional_id
        self._where = f"on {settings.bootstrap_servers}"
        self._timeout = settings.transaction_timeout
        self._expiry = Deadline(SystemClock(), self._timeout)
        self._refusals = Refusals()
        self._impatient = Impatient(f"{transactional_id}-offsets")
        self._broken: FencedError | UnknownOutcome | None = None

    def init(self) -> None:
        connect(self._client, self._complaints, self._where)
        deadline = Deadline(SystemClock(), REQUEST_TIMEOUT)
        self._call(self._client.init_transactions, deadline, f"starting producer `{self._id}`")

    def begin(self) -> None:
        self._refusals = Refusals()
        self._expiry = Deadline(SystemClock(), self._timeout)
        at_once = Deadline(SystemClock(), 0)
        self._call(lambda _timeout: self._client.begin_transaction(), at_once, "beginning a transaction")

    def produce(self, outputs: Sequence[Output]) -> None:
        before = self._refusals.sending(outputs)
        enqueue = self._client.produce
        on_delivery = self._refusals.on_delivery
        for index, output in enumerate(outputs, start=before):
            headers = output.headers if type(output.headers) is list else list(output.headers)
            while True:
                try:
                    enqueue(output.topic, output.value, output.key, output.partition, on_delivery, None, 0, headers)
                    break
                except BufferError:
                    self._serve(_QUEUE_PAUSE)
                except KafkaException as exception:
                    raise self._unqueued(kafka_error(exception), output, index) from None

    def send_offsets(self, topic: str, commits: Sequence[Commit], group_metadata: object) -> None:
        offsets = [TopicPartition(topic, commit.partition, commit.offset, commit.metadata) for commit in commits]

        client = self._client

        def send(timeout: float) -> None:
            call = partial(client.send_offsets_to_transaction, offsets, group_metadata, timeout)
            if not self._impatient.call(call, timeout + _GRACE):
                raise UnknownOutcome(f"Kafka, committing offsets of {topic} {self._where}: the client hangs")

        try:
            self._answered(send, self._expiry, f"committing offsets of {topic}", "The transaction has expired by now.")
        except (AbortableError, FatalError) as error:
            raise self._blame(error) from None

    def commit(self) -> None:
        in_doubt = "Whether the transaction was committed is not known."
        try:
            self._answered(self._client.commit_transaction, self._expiry, "committing a transaction", in_doubt)
        except (AbortableError, FatalError) as error:
            raise self._blame(error) from None

    def abort(self) -> None:
        deadline = Deadline(SystemClock(), self._timeout)
        in_doubt = "The next producer will abort it."
        self._answered(self._client.abort_transaction, deadline, "aborting a transaction", in_doubt)
        if self._refusals:
            self._renew()

    def close(self) -> None:
        # The client's own `close` would wait for the log to abort; whoever wants that calls `abort` before.
        self._impatient.close()
        if not isinstance(self._broken, UnknownOutcome):  # a client that hangs would take us along
            self._client.purge(blocking=False)
        del self._client

    def _renew(self) -> None:
        """A refused record leaves a gap in librdkafka's sequence numbers, which would fail the next transaction."""
        self._complaints = Complaints(self._settings)
        self._client = self._new_client(self._id)
        self.init()

    def _new_client(self, transactional_id: str) -> Producer:
        config = self._settings.transactional(transactional_id) | self._batches
        return make_client(Producer, config | {"error_cb": self._complaints.note})

    def _answered(self, call: Callable[[float], None], deadline: Deadline, doing: str, otherwise: str) -> None:
        """Call; without an answer in time nothing more can be done with this client."""
        try:
            self._call(call, deadline, doing)
        except RetriableError as error:
            self._broken = UnknownOutcome(f"{error} {otherwise}")
            raise self._broken from None

    def _call(self, call: Callable[[float], None], deadline: Deadline, doing: str) -> None:
        """Call until it is known how it went. A broken producer would sit out the time for no other answer."""
        if self._broken is not None:
            raise self._broken
        while True:
            try:
                with translated(f"{doing} {self._where}"):
                    call(deadline.left())
            except RetriableError:
                if deadline.over():
                    raise
                time.sleep(_RETRY_PAUSE)
            except (FencedError, UnknownOutcome) as error:
                self._broken = error
                raise
            else:
                return

    def _unqueued(self, error: KafkaError, output: Output, index: int) -> LogError:
        if error.code() in codes.REFUSED_RECORD:
            return refused_record(error, output.topic, output.partition, index)
        if error.code() == codes.WRONG_STATE:
            return self._blame(AbortableError(f"Kafka, writing {self._where}: the transaction has failed already"))
        if error.code() == codes.CLIENT_DEAD:
            return self._cause_of_death(error)
        return log_error(error, f"writing to {output.topic} {self._where}")

    def _cause_of_death(self, error: KafkaError) -> LogError:
        """Only the transactional calls tell whether the client has given up because it was fenced."""
        try:
            self.abort()
        except LogError as cause:
            return cause
        return log_error(error, f"writing {self._where}")

    def _blame(self, error: AbortableError | FatalError) -> LogError:
        """Name the refused record if there is one: it would fail every further attempt too."""
        if not self._refusals:
            # The client fails the transaction a moment before it hands out the reports about the refused records.
            self._serve(_REPORT_PAUSE)
        if not self._refusals:
            return error
        culprit = self._refusals.culprit()
        topic = culprit.output.topic
        if culprit.error.code() == codes.TOO_LARGE and culprit.output.size() <= (limit := self._limit(topic)):
            self._batches["batch.size"] = limit
            return AbortableError(f"Kafka takes no more than {limit} bytes at once for {topic}: trying smaller batches")
        return refused_record(culprit.error, topic, culprit.output.partition, culprit.index)

    def _serve(self, timeout: float) -> None:
        """Let the client call back; it may have to tell that it has given up."""
        with translated(f"writing {self._where}"):
            self._client.poll(timeout)

    def _limit(self, topic: str) -> int:
        info = self._admin.describe([topic])[topic]
        return 0 if info is None else int(info.config["max.message.bytes"])
