"""An ordinary producer and consumer: `python -m cluster.hostile.bystander HOST PORT TOPIC`.

Writes numbers and reads them back, one request after the other, until its standard input ends; then says how it fared.
"""

from __future__ import annotations

import json
import select
import sys
import time

from cluster.handlers.talk import Closed, Wire, produce
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.records.batch import Record, decode_batch, encode_batch, read_header

MIB = 1024 * 1024


class Reckoner:
    def __init__(self, host: str, port: int, topic: str) -> None:
        self.topic = topic
        self.slowest_s = 0.0
        self.written = 0
        self.read = 0
        self._writer, self._reader = Wire(host, port), Wire(host, port)

    def round(self) -> None:
        began = time.monotonic()
        self._write()
        self._read()
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    def _write(self) -> None:
        data = encode_batch([Record(0, 1_700_000_000_000, b"n", b"%d" % self.written, ())])
        answer = self._writer.ask(produce(self.topic, data), 9).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, self.written), answer
        self.written += 1

    def _read(self) -> None:
        wanted = FetchPartition(fetch_offset=self.read, partition_max_bytes=MIB)
        topics = [FetchTopic(topic=self.topic, partitions=[wanted])]
        answer = self._reader.ask(FetchRequest(max_wait_ms=5000, min_bytes=1, topics=topics), 12)
        partition = answer.responses[0].partitions[0]
        assert partition.error_code == 0 and partition.records, partition
        position = 0
        while position < len(partition.records):
            for record in decode_batch(partition.records, position):
                assert (record.offset, record.value) == (self.read, b"%d" % self.read), record
                self.read += 1
            position += read_header(partition.records, position).size_bytes


def main(host: str, port: str, topic: str) -> None:
    reckoner = Reckoner(host, int(port), topic)
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
