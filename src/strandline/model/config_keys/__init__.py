"""Every broker key of Kafka 4.3, one module per subject; `model/config_keys/broker` puts them into one table."""
