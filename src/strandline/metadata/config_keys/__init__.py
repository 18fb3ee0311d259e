"""Every broker key of Kafka 4.3, one module per subject; `metadata/broker_configs` puts them into one table."""
