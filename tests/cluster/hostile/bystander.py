"""An ordinary producer and consumer: `python -m cluster.hostile.bystander HOST PORT TOPIC PID-OF-THE-NODE`.

Writes numbers and reads them back, one request after the other, until its standard input ends; then says how it fared.
A round takes as long as the clock says, less the time in which those that it waits for were ready to go on and had no
processor: that is the machine's doing, and says nothing of who holds up whom in the node.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from pathlib import Path

from cluster.handlers.talk import Closed, Wire, produce
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.records.batch import Record, decode_batch, encode_batch, read_header

MIB = 1024 * 1024


def missed_s(pid: int) -> dict[str, float]:
    """By thread of this process: how long it has stood in line for a processor, ever."""
    found = {}
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):  # it has ended
            found[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return found


class Queue:
    """Where a client, a node's event loop and whoever has the interpreter of that node stand when there are more of
    them than processors."""

    def __init__(self, node: int) -> None:
        self._node = node
        self._before = self._missed()

    def missed_s(self) -> float:
        """Since this was made. The event loop waits for one other thread at a time, the one that has the interpreter:
        of those the one that missed most counts."""
        (mine, node), (mine_before, node_before) = self._missed(), self._before
        missed = {thread: node[thread] - node_before.get(thread, 0.0) for thread in node}
        loop_s = missed.pop(str(self._node), 0.0)
        return sum(mine.values()) - sum(mine_before.values()) + loop_s + max(missed.values(), default=0.0)

    def _missed(self) -> tuple[dict[str, float], dict[str, float]]:
        return missed_s(os.getpid()), missed_s(self._node)


class Reckoner:
    def __init__(self, host: str, port: int, topic: str, node: int) -> None:
        self.topic = topic
        self._node = node
        self.slowest_s = 0.0
        self.written = 0
        self.read = 0
        self._writer, self._reader = Wire(host, port), Wire(host, port)

    def round(self) -> None:
        began, queue = time.monotonic(), Queue(self._node)
        self._write()
        self._read()
        self.slowest_s = max(self.slowest_s, time.monotonic() - began - queue.missed_s())

    def _write(self) -> None:
        data = encode_batch([Record(0, 1_700_000_000_000, b"n", b"%d" % self.written, ())])
        answer = self._writer.ask(produce(self.topic, data), 9).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, self.written), answer
        self.written += 1

    def _read(self) -> None:
        wanted = FetchPartition(fetch_offset=self.read, partition_max_bytes=MIB)
        topics = [FetchTopic(topic=self.topic, partitions=[wanted])]
        answer = self._reader.ask(FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=topics), 12)
        partition = answer.responses[0].partitions[0]
        assert partition.error_code == 0 and partition.records, partition
        position = 0
        while position < len(partition.records):
            for record in decode_batch(partition.records, position):
                assert (record.offset, record.value) == (self.read, b"%d" % self.read), record
                self.read += 1
            position += read_header(partition.records, position).size_bytes


def main(host: str, port: str, topic: str, node: str) -> None:
    reckoner = Reckoner(host, int(port), topic, int(node))
    reckoner.round()
    reckoner.slowest_s = 0.0  # the first round pays for what is compiled and opened on first use
    print("ready", flush=True)
    failure = None
    try:
        while not select.select([sys.stdin], [], [], 0.002)[0]:
            reckoner.round()
        reckoner.round()
    except (OSError, Closed, AssertionError) as error:
        failure = repr(error)
    result = {"written": reckoner.written, "read": reckoner.read, "slowest_s": reckoner.slowest_s, "failure": failure}
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
