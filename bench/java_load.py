"""Load by Kafka's Java tools and by librdkafka, and the numbers that they print."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.single_node import Server

JAVA = Path(__file__).parent / "java"


@dataclass(frozen=True)
class Produced:
    records_per_second: float
    p99_ms: float
    cpu_seconds_per_gb: float


@dataclass(frozen=True)
class Consumed:
    """Also the result of a produce by librdkafka."""

    records_per_second: float
    cpu_seconds_per_gb: float


class JavaLoad:
    def __init__(self, classpath: str) -> None:
        self.classpath = classpath

    def java(self, main: str, *arguments: str, source: bool = False) -> str:
        command = ["java", "-Xmx1g", "-cp", self.classpath, str(JAVA / f"{main}.java") if source else main, *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout

    def create_topic(self, server: Server, topic: str, partitions: int) -> float:
        began = time.perf_counter()
        self.java(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", server.bootstrap, "--create",
            "--topic", topic, "--partitions", str(partitions), "--replication-factor", "1",
        )  # fmt: skip
        return time.perf_counter() - began

    def delete_topic(self, server: Server, topic: str) -> None:
        self.java(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", server.bootstrap, "--delete", "--topic", topic
        )

    def produce(self, server: Server, topic: str, records: int, size: int, **properties: str) -> Produced:
        configs = {"bootstrap.servers": server.bootstrap, "acks": "all", **properties}
        cpu = server.cpu_seconds()
        printed = self.java(
            "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(records),
            "--record-size", str(size), "--throughput", "-1",
            "--command-property", *(f"{key}={value}" for key, value in configs.items()),
        )  # fmt: skip
        spent = server.cpu_seconds() - cpu
        last = printed.strip().splitlines()[-1]
        found = re.search(r"sent, ([\d.]+) records/sec.* ([\d.]+) ms 99th", last)
        if found is None:
            raise RuntimeError(f"ProducerPerformance printed {last!r}")
        return Produced(float(found[1]), float(found[2]), spent / (records * size / 1e9))

    def consume(self, server: Server, topic: str, records: int, size: int) -> Consumed:
        cpu = server.cpu_seconds()
        printed = self.java("AssignedConsumer", server.bootstrap, topic, str(records), source=True)
        spent = server.cpu_seconds() - cpu
        rate, total_bytes, _ = printed.split()
        return Consumed(float(rate), spent / (float(total_bytes) / 1e9))

    def rdkafka(self, server: Server, verb: str, topic: str, records: int, size: int) -> Consumed:
        """The same numbers for librdkafka, for a produce or a consume."""
        cpu = server.cpu_seconds()
        command = [
            sys.executable,
            "-m",
            "bench.librdkafka_load",
            verb,
            server.bootstrap,
            topic,
            str(records),
            str(size),
        ]
        printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=JAVA.parent.parent).stdout
        return Consumed(float(printed), (server.cpu_seconds() - cpu) / (records * size / 1e9))

    def end_to_end(self, server: Server, topic: str, records: int) -> tuple[float, float]:
        """(average, p99) in milliseconds. Not by Kafka's EndToEndLatency, which commits offsets at its end."""
        printed = self.java("EndToEnd", server.bootstrap, topic, str(records), "100", source=True)
        average, tail = printed.split()
        return float(average), float(tail)
