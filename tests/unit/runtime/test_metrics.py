"""Counters, gauges and windows, and their snapshots."""

from __future__ import annotations

import random

from strandline.runtime.metrics import Metrics, Window


def test_the_same_name_and_tags_are_one_counter() -> None:
    metrics = Metrics()
    metrics.counter("kafka.network:type=RequestMetrics,name=RequestsPerSec", request="Produce").add()
    metrics.counter("kafka.network:type=RequestMetrics,name=RequestsPerSec", request="Produce").add(2)
    assert metrics.snapshot(0) == {"kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Produce": 3}


def test_a_gauge_is_read_by_a_snapshot() -> None:
    metrics, queue = Metrics(), [1]
    metrics.gauge("size", lambda: len(queue))
    queue.append(2)
    assert metrics.snapshot(0)["size"] == 2


def test_a_series_has_the_tags_of_the_moment() -> None:
    metrics = Metrics()
    lags = {"billing": 3.0, "a,b": 4.0}
    metrics.series("s:type=lag", lambda: [({"group": group}, lag) for group, lag in lags.items()])
    assert metrics.snapshot(0) == {"s:type=lag,group=a%2Cb": 4.0, "s:type=lag,group=billing": 3.0}
    del lags["billing"]
    assert metrics.snapshot(0) == {"s:type=lag,group=a%2Cb": 4.0}


def test_percentiles_are_within_an_eighth_and_the_maximum_is_exact() -> None:
    window, values = Window(), []
    generator = random.Random(3)
    for _ in range(10_000):
        value = int(generator.expovariate(1 / 500))
        values.append(value)
        window.record(value, 0)
    values.sort()
    for fraction in (0.01, 0.5, 0.9, 0.99, 0.999):
        exact = values[int(fraction * len(values)) - 1]
        assert exact <= window.percentile(fraction, 0) <= exact * 1.126 + 1
    assert window.longest(0) == values[-1]
    assert window.percentile(1, 0) == values[-1]


def test_small_values_are_exact() -> None:
    window = Window()
    for value in range(16):
        window.record(value, 0)
    assert [window.percentile((n + 1) / 16, 0) for n in range(16)] == list(range(16))
    assert window.mean(0) == 7.5


def test_values_older_than_two_spans_are_dropped() -> None:
    window = Window(span_ms=1000)
    window.record(500, 0)
    window.record(7, 1500)
    assert window.longest(1500) == 500, "the span before the current one still counts"
    window.record(7, 2600)
    assert window.longest(2600) == 7
    assert window.longest(10_000) == 0
    assert window.mean(10_000) == 0.0
    assert window.percentile(0.99, 10_000) == 0
    assert window.count == 3, "the count is of everything ever recorded"
