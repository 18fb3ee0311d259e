"""Every message of Kafka 4.3, a module per conversation. Values only; `protocol.apis` imports them on first use."""
