"""Side by side with Apache Kafka 4.3.1: prints a table of ratios, gates nothing. `bench/run --help`."""
