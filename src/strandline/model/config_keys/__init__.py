"""Kafka 4.3's config keys. The tables are in `broker`, `topic` and `group`; broker keys are declared in a module per
subject."""
