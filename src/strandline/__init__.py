"""Strandline: a Kafka-compatible cluster in Python."""

__version__ = "0.1.0"
