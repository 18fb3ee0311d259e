"""The faults `voters` and `brokers`: voters are added and removed, disks replaced, brokers added and unregistered.

One change at a time. A disk is wiped only after the removal of its voter is committed, and only if no earlier request
of unknown outcome could add that voter again (see the limits in faults.py).
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TypeVar

from strandline.client.errors import TRANSPORT_ERRORS
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.cluster import UnregisterBrokerRequest, UnregisterBrokerResponse
from strandline.protocol.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from strandline.protocol.types import Message
from strandline.runtime.world import World
from strandline.simulation.cluster.broker_connection import UNKNOWN_OUTCOME, BrokerConnection
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.nodes import CLUSTER_ID, PORT

R = TypeVar("R", bound=Message)
_ATTEMPTS = 5
_POLLS = 20


async def change_voters(cluster: Cluster, random: Random, length_s: float) -> str | None:
    if cluster.plan.layout.static_voters or cluster.membership_changing:
        return None
    voters = [voter.id for voter in cluster.voters()]
    outside = [each for each in cluster.controller_ids if each not in voters]
    what = random.choice(("add", "remove", "replace", "uncommitted"))
    cluster.membership_changing = True
    try:
        if what == "add" and outside:
            return await _add(cluster, cluster.member(random.choice(outside)), length_s)
        if what == "remove" and len(voters) > 2:
            return await _remove(cluster, cluster.member(random.choice(voters)))
        if what == "replace" and len(voters) > 2:
            return await _replace(cluster, cluster.member(random.choice(voters)), random, length_s)
        if what == "uncommitted" and len(voters) > 2:
            return await _remove_uncommitted(cluster, voters, random, length_s + 3)
    finally:
        cluster.membership_changing = False
    return None


async def _remove_uncommitted(cluster: Cluster, voters: list[int], random: Random, length_s: float) -> str | None:
    """Sends RemoveRaftVoter to a partitioned leader: its record is not committed and has to be truncated later."""
    leader = cluster.leader()
    if leader is None or leader.id not in voters or leader.paused:
        return None
    members = [cluster.member(each) for each in random.sample([each for each in voters if each != leader.id], 2)]
    others = [cluster.member(each).name for each in cluster.controller_ids if each != leader.id]
    fabric = cluster.simulation.fabric
    cluster.note(leader, "is partitioned from all other controllers")
    for other in others:
        fabric.block(leader.name, other)
        fabric.block(other, leader.name)
    at = [leader.name] if leader.config.node.is_broker else None
    # The second is rejected at once, as the first is not committed.
    await asyncio.gather(*(_request_removal(cluster, member, at) for member in members))
    for _ in range(_POLLS):
        if cluster.leader() not in (None, leader):
            break
        await asyncio.sleep(length_s / _POLLS)
    for other in others:
        fabric.unblock(leader.name, other)
        fabric.unblock(other, leader.name)
    cluster.note(leader, "reaches all other controllers again")
    return "voter removed in vain"


async def _add(cluster: Cluster, member: Member, length_s: float) -> str | None:
    if not member.running:
        member.boot()
    await asyncio.sleep(length_s)
    listener = Listener(name="CONTROLLER", host=member.name, port=PORT + 1)
    request = AddRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        timeout_ms=2_000,
        voter_id=member.id,
        voter_directory_id=member.directory_id,
        listeners=[listener],
    )
    for _ in range(_ATTEMPTS):
        member.may_become_voter = True
        done = await _send(cluster, request, AddRaftVoterResponse, f"add voter {member.id}")
        if done is not None:
            member.may_become_voter = False
        if done:
            return "voter added"
        await asyncio.sleep(0.5)
    return None


async def _remove(cluster: Cluster, member: Member) -> str | None:
    for _ in range(_ATTEMPTS):
        if await _request_removal(cluster, member):
            return "voter removed"
        await asyncio.sleep(0.5)
    return None


async def _request_removal(cluster: Cluster, member: Member, at: list[str] | None = None) -> bool | None:
    request = RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=member.id, voter_directory_id=member.directory_id)
    return await _send(cluster, request, RemoveRaftVoterResponse, f"remove voter {member.id}", at)


async def _replace(cluster: Cluster, member: Member, random: Random, length_s: float) -> str | None:
    if member.may_become_voter or await _remove(cluster, member) is None:
        return None
    if any(voter.id == member.id for voter in cluster.voters()):
        return "voter removed"
    if member.running:
        member.kill()
    member.wipe(random)
    await asyncio.sleep(length_s)
    if not member.running and member.should_run:
        member.boot()
    await _add(cluster, member, 1.0)
    return "disk replaced"


async def change_brokers(cluster: Cluster, random: Random, length_s: float) -> str | None:
    if cluster.membership_changing:
        return None
    brokers = [member for member in cluster.brokers() if not member.config.node.is_controller]
    if not brokers:
        return None
    member = random.choice(brokers)
    cluster.membership_changing = True
    try:
        if not member.running and not member.should_run:
            member.boot()
            return "broker added"
        if len([each for each in cluster.brokers() if each.should_run]) <= 1:
            return None
        return await _unregister(cluster, member, random, length_s)
    finally:
        cluster.membership_changing = False


async def _unregister(cluster: Cluster, member: Member, random: Random, length_s: float) -> str | None:
    """Either stops the broker first, or leaves it running: then it must register again."""
    if member.running and not member.paused and random.random() < 0.6:
        member.should_run = False
        member.stop()
        await asyncio.sleep(length_s)
    request = UnregisterBrokerRequest(broker_id=member.id)
    await _send(cluster, request, UnregisterBrokerResponse, f"unregister broker {member.id}")
    await asyncio.sleep(length_s)
    if not member.running:
        member.boot()
    return "broker unregistered"


async def _send(
    cluster: Cluster, request: Message, response: type[R], what: str, at: list[str] | None = None
) -> bool | None:
    """Sends to any broker, or to one of `at`. True if it succeeded, False if it was rejected, None if unknown."""
    cluster.admins += 1
    name = f"admin{cluster.admins}"

    async def program(world: World) -> bool | None:
        connection = BrokerConnection(world, lambda: at or [member.name for member in cluster.brokers()], world.random)
        try:
            received = await connection.call(request, response)
        except TRANSPORT_ERRORS:
            return None
        except KafkaError:
            return False
        finally:
            connection.close()
        code = ErrorCode(received.error_code)  # type: ignore[attr-defined]
        return True if code is ErrorCode.NONE else None if code in UNKNOWN_OUTCOME else False

    outcome = await cluster.simulation.machine(name).boot(program)
    words = {True: "done", False: "rejected", None: "unknown"}
    cluster.chronicle.note(name, f"{what}: {words[outcome]}")
    return outcome
