"""What a connection is shown that asks in HTTP: the numbers of the node, once, and then the connection ends.

    curl http://127.0.0.1:9092/metrics

needs no port of its own, because nobody can take one for the other: a Kafka frame begins with its size, and as a size
the letters `GET ` would be 1.2 GB, which a listener refuses (unless `socket.request.max.bytes` is set beyond that, and
then there is no page). Whatever the path, the answer is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.runtime.exposition import render_exposition

GET_AS_FRAME_SIZE: Final = int.from_bytes(b"GET ", "big")


def metrics_page(numbers: Mapping[str, float]) -> bytes:
    body = render_exposition(numbers).encode()
    head = (
        "HTTP/1.1 200 OK\r\n"
        "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
