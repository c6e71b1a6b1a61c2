"""The log on Apache Kafka, through confluent-kafka (librdkafka)."""

from eventbus.kafka.cluster import KafkaCluster

__all__ = ["KafkaCluster"]
