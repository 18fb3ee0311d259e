"""The outside world as ports: clock, disk, network, threads, randomness. Knows nothing of Kafka.

Production and simulation each provide a `World`. Everything above takes it as an argument and works with either.
"""
