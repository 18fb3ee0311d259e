"""Addresses in config values: host:port and id@host:port.

Used by the rules of the quorum's keys, by `node/config`, and by `node/storage` for initial controllers.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from strandline.model.config_keys.key import ConfigValue
from strandline.model.ids import Endpoint

_ADDRESS = re.compile(r"(?:\[([0-9a-zA-Z%._:-]+)\]|([^\[\]/@:\s]+)):([0-9]{1,5})")
_VOTER = re.compile(r"([0-9]{1,10})@(.*)")


class Voter(NamedTuple):
    id: int
    endpoint: Endpoint


def parse_address(text: str) -> Endpoint:
    """host:port, or [address]:port for IPv6."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[3]) > 65535:
        raise ValueError(f"{text!r} is not host:port, for example localhost:9093 or [::1]:9093")
    return Endpoint(match[1] or match[2], int(match[3]))


def parse_voter(text: str) -> Voter:
    match = _VOTER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not id@host:port, for example 1@localhost:9093")
    return Voter(int(match[1]), parse_address(match[2]))


def voters_problem(value: ConfigValue) -> str | None:
    return _first_problem(value, parse_voter)


def servers_problem(value: ConfigValue) -> str | None:
    return _first_problem(value, parse_address)


def _first_problem(value: ConfigValue, parse: object) -> str | None:
    assert isinstance(value, tuple) and callable(parse)
    for item in value:
        try:
            parse(item)
        except ValueError as error:
            return str(error)
    return None
