"""Every error this project raises on purpose, split by whose fault it is and what to do about it.

Adapters translate their client's errors into the `LogError` family in one place each; nothing above an adapter
ever sees a client's own exception. The name of a `LogError` is the reaction it asks for:

=================== =============================================================================================
`RetriableError`    repeat the same call
`AbortableError`    abort the transaction, drop what was computed, restore from the last commit
`UnproducibleError` one record can never be written: dead-letter it, the rest goes on
`FencedError`       another producer has our transactional id: make a new producer, restore
`UnknownOutcome`    what became of the transaction is not known: make a new producer, restore
`FatalError`        stop, with this one line for the user
=================== =============================================================================================
"""

from __future__ import annotations


class EventBusError(Exception):
    """Base of all errors that are reported to a user as one clear message, without a traceback."""

    exit_code = 1


class ConfigError(EventBusError):
    """The user's input (a manifest, an option, a name) cannot be used as it is."""

    exit_code = 2


class MachineError(EventBusError):
    """This machine lacks something that is needed: a Java, room on its disk, a way to the jars."""


class InvalidEvent(EventBusError):
    """A record or a document is not a CloudEvent; the message says which rule it breaks."""


class FormatError(EventBusError):
    """One of our own records, or the metadata of a commit, is corrupt."""

    exit_code = 3


class NewerFormatError(FormatError):
    """It was written by a newer release: stop, and let that release read it."""


class LogError(EventBusError):
    """Something the log (Kafka, or its in-memory twin) answered."""


class RetriableError(LogError):
    """The same call may succeed if it is repeated."""


class AbortableError(LogError):
    """The current transaction cannot be committed; the producer is still good."""


class UnproducibleError(LogError):
    """The log refuses one record for ever, for instance because it is too large."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index
        """Which of the records produced in this transaction it was, counted from 0."""


class FencedError(LogError):
    """A newer producer with the same transactional id exists."""


class UnknownOutcome(LogError):
    """The answer to a commit was lost, or the producer is of no more use: the last commit tells what happened."""


class FatalError(LogError):
    """Nothing this process can do will help; the message says what a person can do."""

    exit_code = 3


class Superseded(FatalError):
    """A newer generation of this sensor has taken over."""

    exit_code = 4
