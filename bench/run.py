"""Compares Strandline with Apache Kafka, with the same configs and load, and prints a table.

Every throughput line follows a warm-up of its server, and is measured `--rounds` times alternately (Kafka, Strandline,
Kafka, …) so that noise affects both. The table has the median of each, the range, and the ratio of the medians. The
page cache is filled first: see `bench/page_cache.py`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.java_load import JavaLoad
from bench.kafka_jars import OracleMissing, classpath
from bench.page_cache import fill_page_cache
from bench.single_node import Kafka, Server, Strandline
from bench.three_node_bench import ThreeNodeBench, growth

PARTITIONS = 6
TITLE = 62
BATCHING = {"linger.ms": "5", "batch.size": "131072"}


@dataclass
class Line:
    title: str
    unit: str
    kafka: list[float] = field(default_factory=list)
    strandline: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        ours, theirs = statistics.median(self.strandline), statistics.median(self.kafka)
        return ours / theirs if theirs else float("nan")

    def text(self) -> str:
        def shown(values: list[float]) -> str:
            middle = statistics.median(values)
            digits = 0 if middle >= 100 else 2
            spread = f" ({min(values):,.{digits}f}–{max(values):,.{digits}f})" if len(values) > 1 else ""
            return f"{middle:,.{digits}f}{spread}"

        values = f"{shown(self.kafka):>28} {shown(self.strandline):>28} {self.ratio:>8.2f}×"
        return f"{self.title:<{TITLE}} {self.unit:<10} {values}"


class Bench:
    def __init__(self, directory: Path, classpath: str, scale: float, rounds: int) -> None:
        self.directory = directory
        self.load = JavaLoad(classpath)
        self.scale = scale
        self.rounds = rounds
        self.servers: list[Server] = [
            Kafka("Apache Kafka 4.3.1", directory / "kafka", classpath),
            Strandline("Strandline", directory / "strandline"),
        ]
        self.lines: dict[str, Line] = {}

    def note(self, server: Server, title: str, unit: str, value: float) -> None:
        self.note_of(isinstance(server, Kafka), title, unit, value)

    def note_of(self, is_kafka: bool, title: str, unit: str, value: float) -> None:
        line = self.lines.setdefault(title, Line(title, unit))
        (line.kafka if is_kafka else line.strandline).append(value)
        name = self.servers[0 if is_kafka else 1].name
        print(f"  {name}: {title} {value:,.2f} {unit}", file=sys.stderr, flush=True)

    def count(self, records: int) -> int:
        return max(1000, int(records * self.scale))

    def starting(self) -> None:
        for server in self.servers:
            server.prepare()
        for _ in range(self.rounds):
            for server in self.servers:
                self.note(server, "cold start to metadata served", "s", server.start())
                time.sleep(2)
                self.note(server, "memory, idle", "MB", server.resident_mb())
                server.stop()
        for server in self.servers:
            server.start()

    def producing(self, size: int, records: int, codec: str) -> None:
        title = f"produce {size} B, {codec}"
        for server in self.servers:
            self.load.create_topic(server, "warm", PARTITIONS)
            self.load.produce(server, "warm", self.count(records // 2), size, **BATCHING)
            self.load.delete_topic(server, "warm")
        for attempt in range(self.rounds):
            for server in self.servers:
                topic = f"produce-{size}-{codec}-{attempt}"
                self.load.create_topic(server, topic, PARTITIONS)
                done = self.load.produce(
                    server, topic, self.count(records), size, **BATCHING, **{"compression.type": codec}
                )
                self.note(server, title, "records/s", done.records_per_second)
                self.note(server, f"{title}: p99", "ms", done.p99_ms)
                self.note(server, f"{title}: server CPU", "s/GB", done.cpu_seconds_per_gb)

    def consuming(self, size: int, records: int) -> None:
        title = f"consume {size} B"
        for attempt in range(self.rounds):
            for server in self.servers:
                topic = f"produce-{size}-none-{attempt}"
                done = self.load.consume(server, topic, self.count(records), size)
                self.note(server, title, "records/s", done.records_per_second)
                self.note(server, f"{title}: server CPU", "s/GB", done.cpu_seconds_per_gb)

    def librdkafka(self) -> None:
        for attempt in range(self.rounds):
            for server in self.servers:
                topic = f"rdkafka-{attempt}"
                self.load.create_topic(server, topic, PARTITIONS)
                for verb in ("produce", "consume"):
                    done = self.load.rdkafka(server, verb, topic, self.count(1_000_000), 1000)
                    self.note(server, f"librdkafka {verb} 1000 B", "records/s", done.records_per_second)
                    self.note(server, f"librdkafka {verb} 1000 B: server CPU", "s/GB", done.cpu_seconds_per_gb)

    def one_record_requests(self) -> None:
        for attempt in range(self.rounds):
            for server in self.servers:
                topic = f"single-{attempt}"
                self.load.create_topic(server, topic, PARTITIONS)
                done = self.load.produce(
                    server, topic, self.count(300_000), 100, **{"batch.size": "1", "linger.ms": "0"}
                )
                self.note(server, "one-record requests", "requests/s", done.records_per_second)
                # 100 bytes each, so a gigabyte is ten million of them.
                self.note(server, "one-record requests: server CPU", "µs", done.cpu_seconds_per_gb / 10)

    def latency(self) -> None:
        for attempt in range(self.rounds):
            for server in self.servers:
                topic = f"latency-{attempt}"
                self.load.create_topic(server, topic, 1)
                average, tail = self.load.end_to_end(server, topic, self.count(10_000))
                self.note(server, "end to end, average", "ms", average)
                self.note(server, "end to end, p99", "ms", tail)

    def loaded_memory(self) -> None:
        for server in self.servers:
            self.note(server, "memory, after the load", "MB", server.resident_mb())

    def many_partitions(self) -> None:
        for server in self.servers:
            server.stop()
            shutil.rmtree(server.directory)
            server.prepare()
            server.start()
            self.note(
                server, "create 5,000 partitions (with a JVM's start)", "s",
                self.load.create_topic(server, "many", 5000),
            )  # fmt: skip
            time.sleep(5)
            self.note(server, "memory with 5,000 partitions", "MB", server.resident_mb())
            self.note(server, "stop with 5,000 partitions", "s", server.stop())
            self.note(server, "restart with 5,000 partitions", "s", server.start())
            server.stop(signal.SIGKILL)
            self.note(server, "restart after kill -9, 5,000 partitions", "s", server.start())

    def cluster(self, sizes: list[int]) -> None:
        """Three nodes of each; the single nodes are no longer needed."""
        self.close()
        ThreeNodeBench(self.directory, self.load.classpath, self.rounds, sizes, self.note_of).run()

    def report(self) -> str:
        header = f"{'':<{TITLE}} {'':<10} {'Apache Kafka 4.3.1':>28} {'Strandline':>28} {'ratio':>9}"
        lines = [line for line in self.lines.values() if line.kafka and line.strandline]
        table = "\n".join([header, *(line.text() for line in lines)])
        measured = [(line.title, line.unit, line.kafka, line.strandline) for line in lines]
        return table + "\n\n" + growth(measured) if any(" partitions: " in line.title for line in lines) else table

    def close(self) -> None:
        for server in self.servers:
            if server.process is not None:
                server.stop(signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/run", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="0.05 for a run of minutes")
    parser.add_argument(
        "--only", default="", help="comma-separated: produce,consume,librdkafka,single,latency,memory,many,cluster"
    )
    parser.add_argument(
        "--sizes", default="1000,5000,20000", help="numbers of partitions of the three nodes, multiples of 1000"
    )
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    options = parser.parse_args()
    try:
        kafka = classpath()
    except OracleMissing as missing:
        print(f"bench: Java 17 and Maven are needed to run Apache Kafka: {missing}", file=sys.stderr)
        return 1
    directory = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
    bench = Bench(directory, kafka, options.scale, options.rounds)
    stages: dict[str, Callable[[], None]] = {
        "produce": lambda: [bench.producing(*what) for what in PRODUCE] and None,
        "consume": lambda: [bench.consuming(*what) for what in CONSUME] and None,
        "librdkafka": bench.librdkafka,
        "single": bench.one_record_requests,
        "latency": bench.latency,
        "memory": bench.loaded_memory,
        "many": bench.many_partitions,
        "cluster": lambda: bench.cluster([int(size) for size in options.sizes.split(",")]),
    }
    wanted = options.only.split(",") if options.only else list(stages)
    try:
        print(f"  page cache filled with {fill_page_cache(directory) >> 20:,} MB", file=sys.stderr, flush=True)
        if wanted != ["cluster"]:
            bench.starting()
        for name, stage in stages.items():
            if name in wanted:
                stage()
    finally:
        bench.close()
        shutil.rmtree(directory, ignore_errors=True)
        print(bench.report())
        if options.json:
            options.json.write_text(json.dumps({line.title: vars(line) for line in bench.lines.values()}, indent=1))
    return 0


# (record size, records, codec): two gigabytes each, so that a run takes long enough.
PRODUCE = [(1000, 2_000_000, "none"), (1000, 2_000_000, "lz4"), (100, 15_000_000, "none"), (100, 15_000_000, "lz4")]
CONSUME = [(1000, 2_000_000), (100, 15_000_000)]

if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as failed:
        print(f"bench: {failed}\n{failed.stderr}", file=sys.stderr)
        sys.exit(1)
