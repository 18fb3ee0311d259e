"""The outside world as ports: clock, disk, network, threads, randomness. Knows nothing of Kafka.

Production and simulation each provide one `World`; everything above takes it by argument and never asks which it got.
"""
