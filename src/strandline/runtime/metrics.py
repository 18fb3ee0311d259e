"""The metrics of a node: counters, gauges and windows, under Kafka's names.

Each component is given the node's `Metrics` and registers its own; the metrics page and tests take a `snapshot`. Names
are written like Kafka's MBeans: `kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce`; tags are appended
in the order given.

The hot path pays one attribute addition for a counter, one dictionary update for a window and nothing for a gauge,
which is read for a snapshot only. Nothing here reads a clock: times are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping


class Counter:
    """A count that never falls; its rate is the difference of two snapshots."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        self.value += amount


class Window:
    """The distribution of a non-negative quantity over the last one to two spans of `span_ms`.

    Buckets are exact below 16 and at most an eighth wide above, so that a percentile costs a few hundred numbers
    however much was recorded. The maximum is exact.
    """

    __slots__ = ("_counts", "_ends_ms", "_max", "_old_counts", "_old_max", "_old_total", "_span_ms", "_total", "count")

    def __init__(self, span_ms: int = 30_000) -> None:
        self._span_ms = span_ms
        self._ends_ms = 0
        self._counts: dict[int, int] = {}
        self._max = self._total = 0
        self._old_counts: dict[int, int] = {}
        self._old_max = self._old_total = 0
        self.count = 0  # since the start of the node

    def record(self, value: int, now_ms: int) -> None:
        if now_ms >= self._ends_ms:
            self._rotate(now_ms)
        self.count += 1
        self._total += value
        if value > self._max:
            self._max = value
        bucket = value if value < 16 else _bucket(value)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1

    def _rotate(self, now_ms: int) -> None:
        fresh = now_ms < self._ends_ms + self._span_ms
        self._old_counts = self._counts if fresh else {}
        self._old_max = self._max if fresh else 0
        self._old_total = self._total if fresh else 0
        self._counts = {}
        self._max = self._total = 0
        self._ends_ms = now_ms + self._span_ms

    def longest(self, now_ms: int) -> int:
        if now_ms >= self._ends_ms:
            self._rotate(now_ms)
        return max(self._max, self._old_max)

    def mean(self, now_ms: int) -> float:
        if now_ms >= self._ends_ms:
            self._rotate(now_ms)
        count = sum(self._counts.values()) + sum(self._old_counts.values())
        return (self._total + self._old_total) / count if count else 0.0

    def percentile(self, fraction: float, now_ms: int) -> int:
        """The smallest bucket bound that at least `fraction` of the window lies at or below."""
        if now_ms >= self._ends_ms:
            self._rotate(now_ms)
        merged = dict(self._old_counts)
        for bucket, count in self._counts.items():
            merged[bucket] = merged.get(bucket, 0) + count
        missing = sum(merged.values()) * fraction
        for bucket in sorted(merged):
            missing -= merged[bucket]
            if missing <= 0:
                return min(_upper_bound(bucket), max(self._max, self._old_max))
        return 0


Series = Iterable[tuple[Mapping[str, str], float]]


class Metrics:
    """The registry of one node. The same name and tags return the same counter or window."""

    def __init__(self) -> None:
        self._counters: dict[str, Counter] = {}
        self._windows: dict[str, Window] = {}
        self._gauges: dict[str, Callable[[], float]] = {}
        self._series: dict[str, Callable[[], Series]] = {}

    def counter(self, name: str, **tags: str) -> Counter:
        return self._counters.setdefault(_named(name, tags), Counter())

    def window(self, name: str, **tags: str) -> Window:
        return self._windows.setdefault(_named(name, tags), Window())

    def gauge(self, name: str, read: Callable[[], float], **tags: str) -> None:
        """Replaces a gauge of the same name."""
        self._gauges[_named(name, tags)] = read

    def series(self, name: str, read: Callable[[], Series]) -> None:
        """A gauge whose tags come and go: `read` returns those of the moment. The caller bounds their number."""
        self._series[name] = read

    def snapshot(self, now_ms: int) -> dict[str, float]:
        values: dict[str, float] = {name: counter.value for name, counter in self._counters.items()}
        values.update((name, read()) for name, read in self._gauges.items())
        for name, read_series in self._series.items():
            values.update((_named(name, tags), value) for tags, value in read_series())
        for name, window in self._windows.items():
            values[name + ",attribute=Count"] = window.count
            values[name + ",attribute=Max"] = window.longest(now_ms)
            values[name + ",attribute=Mean"] = window.mean(now_ms)
            values[name + ",attribute=50thPercentile"] = window.percentile(0.5, now_ms)
            values[name + ",attribute=99thPercentile"] = window.percentile(0.99, now_ms)
        return dict(sorted(values.items()))


def _named(name: str, tags: Mapping[str, str]) -> str:
    """A comma in a value is percent-encoded, since commas separate tags."""
    return name + "".join(f",{key}={value.replace(',', '%2C')}" for key, value in tags.items())


def _bucket(value: int) -> int:
    """Eight buckets for each doubling; from 16 on they are wider than one."""
    shift = value.bit_length() - 4
    return shift * 8 + (value >> shift)


def _upper_bound(bucket: int) -> int:
    if bucket < 16:
        return bucket
    shift = (bucket - 8) // 8
    return ((bucket - shift * 8 + 1) << shift) - 1
