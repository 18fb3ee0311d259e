"""Adds the controllers that `up` has added to a cluster as voters: they start as observers and are added one by one.

A failure does not fail `up`: the node runs as an observer, and the message names the command that adds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from strandline.launch.server_properties import CONTROLLER_LISTENER
from strandline.model.ids import Endpoint, Uuid


class NewVoter(msgspec.Struct, frozen=True):
    directory_id: Uuid
    endpoint: Endpoint


def add_voters(bootstrap: str, voters: Mapping[int, NewVoter], say: Callable[[str], None]) -> None:
    """`bootstrap` may name brokers or controllers."""
    asyncio.run(_add_voters(bootstrap, voters, say))


async def _add_voters(bootstrap: str, voters: Mapping[int, NewVoter], say: Callable[[str], None]) -> None:
    from strandline.client.client import Client
    from strandline.client.settings import ClientSettings
    from strandline.model.errors import KafkaError
    from strandline.runtime.world import system_world

    settings = ClientSettings(client_id="strandline-up", api_timeout_ms=20_000)
    async with Client(system_world(threads=1), bootstrap, settings) as client:
        for node_id, voter in voters.items():
            try:
                await client.quorum.add(node_id, voter.directory_id, [(CONTROLLER_LISTENER, voter.endpoint)])
                say(f"node {node_id} has joined the quorum")
            except KafkaError as error:
                say(
                    f"node {node_id} is an observer of the quorum, adding it as a voter failed ({error}): "
                    f"`strandline quorum add {node_id} -b {bootstrap}` adds it"
                )
