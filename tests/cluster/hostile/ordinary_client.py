"""An ordinary producer and consumer: `python -m cluster.hostile.ordinary_client HOST PORT TOPIC PID-OF-THE-NODE`.

Writes numbers and reads them back, one request after the other, until its standard input ends; prints a report for
every line of input. The duration of a round trip excludes the time in which the client or the node was runnable but had
no processor: that depends on the load of the machine, not on the node.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from pathlib import Path

from cluster.connection import Connection, ConnectionClosed
from cluster.record_batches import produce
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.records.batch import Record, decode_batch, encode_batch, read_header

MIB = 1024 * 1024


def waited_s(pid: int) -> dict[str, float]:
    """By thread of this process: how long it has waited for a processor since it started."""
    found = {}
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):  # the thread has ended
            found[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return found


class CpuWait:
    """The time that the client, the node's event loop and the holder of the node's GIL wait for a processor."""

    def __init__(self, node: int) -> None:
        self._node = node
        self._before = self._waited()

    def waited_s(self) -> float:
        """Since construction. The event loop waits for one other thread at a time, the holder of the GIL: of the other
        threads the one that waited longest counts."""
        (mine, node), (mine_before, node_before) = self._waited(), self._before
        waited = {thread: node[thread] - node_before.get(thread, 0.0) for thread in node}
        loop_s = waited.pop(str(self._node), 0.0)
        return sum(mine.values()) - sum(mine_before.values()) + loop_s + max(waited.values(), default=0.0)

    def _waited(self) -> tuple[dict[str, float], dict[str, float]]:
        return waited_s(os.getpid()), waited_s(self._node)


class RoundTrips:
    def __init__(self, host: str, port: int, topic: str, node: int) -> None:
        self.topic = topic
        self._node = node
        self.slowest_s = 0.0
        self.written = 0
        self.read = 0
        self._writer, self._reader = Connection(host, port), Connection(host, port)

    def round(self) -> None:
        started, cpu = time.monotonic(), CpuWait(self._node)
        self._write()
        self._read()
        self.slowest_s = max(self.slowest_s, time.monotonic() - started - cpu.waited_s())

    def _write(self) -> None:
        data = encode_batch([Record(0, 1_700_000_000_000, b"n", b"%d" % self.written, ())])
        response = self._writer.call(produce(self.topic, data), 9).responses[0].partition_responses[0]
        assert (response.error_code, response.base_offset) == (0, self.written), response
        self.written += 1

    def _read(self) -> None:
        wanted = FetchPartition(fetch_offset=self.read, partition_max_bytes=MIB)
        topics = [FetchTopic(topic=self.topic, partitions=[wanted])]
        response = self._reader.call(FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=topics), 12)
        partition = response.responses[0].partitions[0]
        assert partition.error_code == 0 and partition.records, partition
        position = 0
        while position < len(partition.records):
            for record in decode_batch(partition.records, position):
                assert (record.offset, record.value) == (self.read, b"%d" % self.read), record
                self.read += 1
            position += read_header(partition.records, position).size_bytes


def main(host: str, port: str, topic: str, node: str) -> None:
    client = RoundTrips(host, int(port), topic, int(node))
    client.round()
    client.slowest_s = 0.0  # the first round trip compiles message codecs and opens the log
    print("ready", flush=True)
    failure = None
    while True:
        is_requested = bool(select.select([sys.stdin], [], [], 0.002 if failure is None else None)[0])
        if is_requested and not sys.stdin.readline():
            return
        try:
            if failure is None:
                client.round()
        except (OSError, ConnectionClosed, AssertionError) as error:
            failure = repr(error)
        if is_requested:
            result = {"written": client.written, "read": client.read, "slowest_s": client.slowest_s, "failure": failure}
            print(json.dumps(result), flush=True)
            client.slowest_s = 0.0


if __name__ == "__main__":
    main(*sys.argv[1:])
