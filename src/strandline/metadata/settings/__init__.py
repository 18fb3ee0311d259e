"""Every broker key of Kafka 4.3, one module per subject; `metadata/broker_settings` puts them into one table."""
