"""Three nodes, side by side with Apache Kafka: `bench/run --only cluster [--sizes 1000,5000,20000]`.

Three combined nodes of each, one after the other on the same machine, with Kafka's default configs for both. Every line
that grows with the number of partitions is printed for each size. The same client measures the times of both:

- *killed broker*: from kill -9 until a running broker lists no partition with the killed one as leader;
- *killed controller*: from kill -9 of the active controller until the next metadata write succeeds;
- *broker restart*: from the start of the process until it lists every broker, itself included, as live; then until all
  replicas are in sync.

Each measurement starts when the nodes are idle again after the one before.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bench import metadata_replay
from bench.java_load import JavaLoad
from bench.three_nodes import IDS, ThreeNodes

CLIENTS = 50
WRITES = 1000
Note = Callable[[bool, str, str, float], None]
"""(is it Kafka's, title, unit, value)"""


class ThreeNodeBench:
    def __init__(self, directory: Path, classpath: str, rounds: int, sizes: list[int], note: Note) -> None:
        self.directory = directory
        self.classpath = classpath
        self.rounds = rounds
        self.sizes = sizes
        self._note = note

    def run(self) -> None:
        for is_kafka in (True, False):
            name = "Apache Kafka 4.3.1" if is_kafka else "Strandline"
            home = self.directory / ("three-kafka" if is_kafka else "three-strandline")
            cluster = ThreeNodes(name, home, self.classpath, is_kafka)
            try:
                self._starting(cluster)
                self._writing(cluster)
                for size in self.sizes:
                    self._growing(cluster, size)
            finally:
                cluster.close()
                shutil.rmtree(home, ignore_errors=True)
        self._replaying()

    def note(self, cluster: ThreeNodes, title: str, unit: str, value: float) -> None:
        self._note(cluster.is_kafka, title, unit, value)

    def _starting(self, cluster: ThreeNodes) -> None:
        for _ in range(self.rounds):
            shutil.rmtree(cluster.directory, ignore_errors=True)
            cluster.prepare()
            self.note(cluster, "three nodes: new cluster to all brokers serving", "s", cluster.start())
            time.sleep(2)
            self.note(cluster, "three nodes: memory of one, idle", "MB", max(cluster.resident_mb()))
            cluster.stop()
            self.note(cluster, "three nodes: restart to all brokers serving", "s", cluster.start())
            cluster.stop()
        cluster.start()

    def _writing(self, cluster: ThreeNodes) -> None:
        load = JavaLoad(self.classpath)
        for _ in range(self.rounds):
            cpu = cluster.cpu_seconds()
            printed = load.java("MetadataWrites", cluster.bootstrap, str(WRITES), str(CLIENTS), source=True)
            created, altered, failed = map(float, printed.split())
            if failed:
                print(f"  {cluster.name}: {failed:.0f} metadata writes failed", file=sys.stderr)
            spent = cluster.cpu_seconds() - cpu
            self.note(cluster, f"topics created by {CLIENTS} clients at once", "writes/s", created)
            self.note(cluster, f"settings altered by {CLIENTS} clients at once", "writes/s", altered)
            self.note(
                cluster, "CPU of three nodes for 1,000 metadata writes", "s", spent / (2 * WRITES + 3 * CLIENTS) * 1000
            )
        # The following measurements start with an empty cluster.
        cluster.stop()
        shutil.rmtree(cluster.directory)
        cluster.prepare()
        cluster.start()

    def _growing(self, cluster: ThreeNodes, size: int) -> None:
        of = f"{size:,} partitions: "
        thousands = (size - cluster.partitions) / 1000
        self.note(cluster, of + "create 1,000 more with 3 replicas, all led", "s", cluster.grow_to(size) / thousands)
        cluster.until_in_sync()
        cluster.until_idle()
        self.note(cluster, of + "memory of one node", "MB", max(cluster.resident_mb()))
        self._restart(cluster, of)
        self._kill_broker(cluster, of)
        self._kill_controller(cluster, of)

    def _restart(self, cluster: ThreeNodes, of: str) -> None:
        killed = self._follower(cluster)
        self.note(cluster, of + "stop a broker", "s", cluster.stop(killed))
        self.note(cluster, of + "start it again, serving", "s", cluster.start(killed))
        self.note(cluster, of + "then all replicas in sync", "s", cluster.until_in_sync())

    def _kill_broker(self, cluster: ThreeNodes, of: str) -> None:
        cluster.spread_leaders()
        cluster.until_idle()
        killed = self._follower(cluster)
        began = cluster.kill(killed)
        self.note(cluster, of + "killed broker: all led again", "s", cluster.until_led_without(killed, began))
        self.note(cluster, of + "start after kill -9, serving", "s", cluster.start(killed))

    def _kill_controller(self, cluster: ThreeNodes, of: str) -> None:
        cluster.spread_leaders()
        cluster.until_idle()
        killed = cluster.active_controller()
        began = cluster.kill(killed)
        self.note(
            cluster,
            of + "killed controller: next write",
            "s",
            cluster.until_written(f"after-{cluster.partitions}", began),
        )
        self.note(cluster, of + "killed controller: all led again", "s", cluster.until_led_without(killed, began))
        cluster.start(killed)
        cluster.until_in_sync()

    @staticmethod
    def _follower(cluster: ThreeNodes) -> int:
        leader = cluster.active_controller()
        return next(node_id for node_id in IDS if node_id != leader)

    def _replaying(self) -> None:
        for size in [*self.sizes, 100_000]:
            home = self.directory / "replay"
            files = {
                "log": metadata_replay.write_log(home / "log", size),
                "snapshot": metadata_replay.write_snapshot(home / "snapshot", size),
            }
            for is_kafka in (True, False):
                for kind, file in files.items():
                    done = (
                        metadata_replay.by_kafka(self.classpath, kind, file)
                        if is_kafka
                        else metadata_replay.by_strandline(kind, file)
                    )
                    if kind == "log":
                        rate = done.records / done.first_s
                        self._note(is_kafka, f"{size:,} partitions: replay a log, cold", "records/s", rate)
                        rate = done.records / done.fifth_s
                        self._note(is_kafka, f"{size:,} partitions: replay a log, warm", "records/s", rate)
                    else:
                        self._note(is_kafka, f"{size:,} partitions: load a snapshot, cold", "s", done.first_s)
                        self._note(is_kafka, f"{size:,} partitions: load a snapshot, warm", "s", done.fifth_s)
            shutil.rmtree(home)


def growth(lines: Iterable[tuple[str, str, list[float], list[float]]]) -> str:
    """How each measure grows with the number of partitions. A line is (title, unit, Kafka's values, ours)."""
    measures: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}
    for title, unit, kafka, ours in lines:
        size, found, measure = title.partition(" partitions: ")
        if found and kafka and ours:
            values = (statistics.median(kafka), statistics.median(ours))
            measures.setdefault((measure, unit), {})[int(size.replace(",", ""))] = values
    shown = sorted({size for found in measures.values() for size in found})
    head = "".join(f"{size:>10,}" for size in shown)
    rows = [f"{'as partitions grow':<44} {'':<10} {'Kafka':<6}{head}   {'Strandline':<11}{head}"]
    for (measure, unit), found in measures.items():
        cells = [
            "".join(
                f"{found[size][side]:>10,.{_digits(found[size][side])}f}" if size in found else f"{'':>10}"
                for size in shown
            )
            for side in (0, 1)
        ]
        rows.append(f"{measure:<44} {unit:<10} {'':<6}{cells[0]}   {'':<11}{cells[1]}")
    return "\n".join(rows)


def _digits(value: float) -> int:
    return 0 if value >= 100 else 2
