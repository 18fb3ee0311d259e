"""Parses bootstrap servers: `host:port,host:port`, with brackets around an IPv6 address."""

from __future__ import annotations

import re

from strandline.model.ids import Endpoint

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:,\[\]/]+))(?::(?P<port>\d{1,5}))?")
DEFAULT_PORT = 9092


def parse_bootstrap(text: str) -> list[Endpoint]:
    endpoints = []
    for part in text.split(","):
        found = _ADDRESS.fullmatch(part.strip())
        port = int(found["port"] or DEFAULT_PORT) if found else 0
        if found is None or not 0 < port < 65_536:
            raise ValueError(f"{part.strip()!r} is not an address: write host:port, several separated by commas")
        endpoints.append(Endpoint(found["v6"] or found["host"], port))
    return endpoints
