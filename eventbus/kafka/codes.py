"""Kafka's error codes, sorted by what they mean for us.

librdkafka's own codes start with an underscore in the client, though they are public.
"""
# ruff: noqa: SLF001

from __future__ import annotations

from confluent_kafka import KafkaError

ALL_BROKERS_DOWN = KafkaError._ALL_BROKERS_DOWN
PARTITION_EOF = KafkaError._PARTITION_EOF
MAX_POLL_EXCEEDED = KafkaError._MAX_POLL_EXCEEDED
INVALID_RECORD = KafkaError.INVALID_RECORD
TOO_LARGE = KafkaError.MSG_SIZE_TOO_LARGE
CLIENT_DEAD = KafkaError._FATAL
TIMED_OUT = KafkaError._TIMED_OUT
WRONG_STATE = KafkaError._STATE
GROUP_DENIED = KafkaError.GROUP_AUTHORIZATION_FAILED

FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)

# The group has moved on without us. librdkafka marks these as abortable in a transaction, but not elsewhere.
STALE_MEMBER = frozenset(
    {
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.UNKNOWN_MEMBER_ID,
    }
)

# Outside transactions librdkafka does not flag what passes by itself.
TRANSIENT = frozenset(
    {
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError._NOENT,  # no leader is known
        KafkaError._QUEUE_FULL,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._WAIT_COORD,
    }
)

UNREACHABLE = frozenset({ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT, KafkaError._TRANSPORT})

TLS_FAILED = KafkaError._SSL
UNRESOLVED = KafkaError._RESOLVE
BAD_CREDENTIALS = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)

# These may pass, but tell why there is no answer.
NO_WAY_THERE = frozenset({UNRESOLVED, KafkaError._TRANSPORT})

# Trying again is useless until a person has changed a permission or a setting.
NEEDS_A_PERSON = {
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Grant this client the operation on the cluster: see `eventbus acls`.",
    GROUP_DENIED: "Grant this client READ on the consumer group: see `eventbus acls`.",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: (
        "Other members of the group share its partitions in another way: stop them, or name another group."
    ),
    KafkaError.INVALID_REPLICATION_FACTOR: "Start more brokers, or lower the brokers' `default.replication.factor`.",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "Lower `transaction.timeout.ms`, or raise the brokers' maximum.",
    KafkaError.SASL_AUTHENTICATION_FAILED: "Check the user name and the password.",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Grant this client what `eventbus acls` lists for the topic.",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Grant this client WRITE on it: see `eventbus acls`.",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "Check `sasl.mechanism`.",
    KafkaError.UNSUPPORTED_VERSION: "Use Apache Kafka 2.5 or newer.",
    KafkaError._AUTHENTICATION: "Check the user name, the password and `security.protocol`.",
    KafkaError._SSL: "Check the certificates and `security.protocol`.",
    KafkaError._UNSUPPORTED_FEATURE: "Use Apache Kafka 2.5 or newer.",
}

OUT_OF_RANGE = frozenset({KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET})

# What the log will not take however often it is sent. It concerns one record, not the transaction's other records.
REFUSED_RECORD = frozenset(
    {
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)

# The record may have reached the log though the answer has not reached us.
LOST_ANSWER = frozenset({KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT})

# Why a client has given up. What is told of its records has no flag that says so.
GIVEN_UP = frozenset({CLIENT_DEAD, KafkaError._GAPLESS_GUARANTEE, KafkaError._INCONSISTENT})
