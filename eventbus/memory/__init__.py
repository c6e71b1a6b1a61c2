"""The log in memory: same behaviour as on Kafka, no broker, no waiting. For tests."""

from eventbus.memory.cluster import MemoryCluster

__all__ = ["MemoryCluster"]
