"""An ordinary producer and consumer: `python -m cluster.hostile.bystander HOST PORT TOPIC PID-OF-THE-NODE`.

Writes numbers and reads them back, one request after the other, until its standard input ends; then says how it fared.
A round takes as long as the clock says, less the time in which the node's event loop or the bystander itself was ready
to go on and had no processor: that is the machine's doing, and says nothing of who holds up whom in the node.
"""

from __future__ import annotations

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


def queued_s(*pids: int) -> float:
    """How long the first threads of these processes have stood in line for a processor, ever."""
    try:
        told = [Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split() for pid in pids]
    except OSError:
        return 0.0
    return sum(int(waited_ns) for _, waited_ns, _ in told) / 1e9


class Reckoner:
    def __init__(self, host: str, port: int, topic: str, node: int) -> None:
        self.topic = topic
        self._pids = os.getpid(), node
        self.slowest_s = 0.0
        self.written = 0
        self.read = 0
        self._writer, self._reader = Wire(host, port), Wire(host, port)

    def round(self) -> None:
        began = time.monotonic() - queued_s(*self._pids)
        self._write()
        self._read()
        self.slowest_s = max(self.slowest_s, time.monotonic() - queued_s(*self._pids) - began)

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
