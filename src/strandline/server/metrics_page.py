"""The response to an HTTP request on a Kafka listener: the metrics of the node, after which the connection is closed.

    curl http://127.0.0.1:9092/metrics

It needs no port of its own because the protocols cannot be confused: a Kafka frame begins with its size, and the
letters `GET ` as a size are 1.2 GB, which a listener rejects (with a `socket.request.max.bytes` above that there is no
page). The path of the request is ignored.
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
