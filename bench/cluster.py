"""A quorum and its cluster, side by side with Apache Kafka: `bench/run --only cluster [--sizes 1000,5000,20000]`.

Three combined nodes for each side, one side at a time on the same machine, Kafka's defaults for both. Every line that
grows with the number of partitions is printed for each size. Times are seen from outside, by the same small client:

- *killed broker*: from kill -9 until a survivor names no partition that the victim leads;
- *killed controller*: from kill -9 of the active one until the next metadata write succeeds;
- *broker restart*: from the start of the process until it sees every broker alive, itself among them; then until every
  partition has all its replicas again.

Each begins when the nodes have done what the one before left them to do.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bench import replay
from bench.load import Load
from bench.trio import IDS, Trio

CLIENTS = 50
WRITES = 1000
Note = Callable[[bool, str, str, float], None]
"""(is it Kafka's, title, unit, value)"""


class ClusterBench:
    def __init__(self, directory: Path, classpath: str, rounds: int, sizes: list[int], note: Note) -> None:
        self.directory = directory
        self.classpath = classpath
        self.rounds = rounds
        self.sizes = sizes
        self._note = note

    def run(self) -> None:
        for is_kafka in (True, False):
            name = "Apache Kafka 4.3.1" if is_kafka else "Strandline"
            home = self.directory / ("trio-kafka" if is_kafka else "trio-strandline")
            trio = Trio(name, home, self.classpath, is_kafka)
            try:
                self._starting(trio)
                self._writing(trio)
                for size in self.sizes:
                    self._growing(trio, size)
            finally:
                trio.close()
                shutil.rmtree(home, ignore_errors=True)
        self._replaying()

    def note(self, trio: Trio, title: str, unit: str, value: float) -> None:
        self._note(trio.is_kafka, title, unit, value)

    def _starting(self, trio: Trio) -> None:
        for _ in range(self.rounds):
            shutil.rmtree(trio.directory, ignore_errors=True)
            trio.prepare()
            self.note(trio, "three nodes: new cluster to all brokers serving", "s", trio.start())
            time.sleep(2)
            self.note(trio, "three nodes: memory of one, idle", "MB", max(trio.resident_mb()))
            trio.stop()
            self.note(trio, "three nodes: restart to all brokers serving", "s", trio.start())
            trio.stop()
        trio.start()

    def _writing(self, trio: Trio) -> None:
        load = Load(self.classpath)
        for _ in range(self.rounds):
            cpu = trio.cpu_seconds()
            printed = load.java("MetadataWrites", trio.bootstrap, str(WRITES), str(CLIENTS), source=True)
            created, altered, failed = map(float, printed.split())
            if failed:
                print(f"  {trio.name}: {failed:.0f} metadata writes failed", file=sys.stderr)
            spent = trio.cpu_seconds() - cpu
            self.note(trio, f"topics created by {CLIENTS} clients at once", "writes/s", created)
            self.note(trio, f"settings altered by {CLIENTS} clients at once", "writes/s", altered)
            self.note(
                trio, "CPU of three nodes for 1,000 metadata writes", "s", spent / (2 * WRITES + 3 * CLIENTS) * 1000
            )
        # What follows begins with an empty cluster.
        trio.stop()
        shutil.rmtree(trio.directory)
        trio.prepare()
        trio.start()

    def _growing(self, trio: Trio, size: int) -> None:
        of = f"{size:,} partitions: "
        thousands = (size - trio.partitions) / 1000
        self.note(trio, of + "create 1,000 more with 3 replicas, all led", "s", trio.grow_to(size) / thousands)
        trio.until_in_sync()
        trio.until_quiet()
        self.note(trio, of + "memory of one node", "MB", max(trio.resident_mb()))
        self._restart(trio, of)
        self._kill_broker(trio, of)
        self._kill_controller(trio, of)

    def _restart(self, trio: Trio, of: str) -> None:
        victim = self._follower(trio)
        self.note(trio, of + "stop a broker", "s", trio.stop(victim))
        self.note(trio, of + "start it again, serving", "s", trio.start(victim))
        self.note(trio, of + "then all replicas in sync", "s", trio.until_in_sync())

    def _kill_broker(self, trio: Trio, of: str) -> None:
        trio.spread_leaders()
        trio.until_quiet()
        victim = self._follower(trio)
        began = trio.kill(victim)
        self.note(trio, of + "killed broker: all led again", "s", trio.until_led_without(victim, began))
        self.note(trio, of + "start after kill -9, serving", "s", trio.start(victim))

    def _kill_controller(self, trio: Trio, of: str) -> None:
        trio.spread_leaders()
        trio.until_quiet()
        victim = trio.leader()
        began = trio.kill(victim)
        self.note(
            trio, of + "killed controller: next write", "s", trio.until_written(f"after-{trio.partitions}", began)
        )
        self.note(trio, of + "killed controller: all led again", "s", trio.until_led_without(victim, began))
        trio.start(victim)
        trio.until_in_sync()

    @staticmethod
    def _follower(trio: Trio) -> int:
        leader = trio.leader()
        return next(node_id for node_id in IDS if node_id != leader)

    def _replaying(self) -> None:
        for size in [*self.sizes, 100_000]:
            home = self.directory / "replay"
            files = {
                "log": replay.write_log(home / "log", size),
                "snapshot": replay.write_snapshot(home / "snapshot", size),
            }
            for is_kafka in (True, False):
                for kind, file in files.items():
                    done = replay.by_kafka(self.classpath, kind, file) if is_kafka else replay.by_us(kind, file)
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
