"""Clients of one shard of `__consumer_offsets` on virtual time, for transcripts (`scenarios/*.txt`).

    > join a [instance=i] [protocols=range,sticky] [metadata=m] [type=consumer] [session=30s] [rebalance=60s]
             [version=9]
    > enter a …                 as `join`, and once more when the coordinator hands out a member id
    > sync a [a=x b=y]          as the leader: with assignments
    > heartbeat a [generation=1]
    > leave a [b …]             | leave instance i
    > commit a t-0=5 [generation=1]
    > restart a                 the client forgets its member id
    > disconnect a              nothing waits for the responses to a any more
    > wait 3s
    > appends fail NOT_ENOUGH_REPLICAS | appends succeed
    > replication stops | replication resumes
    > failover                  another broker loads the partition
    > group                     its state

Output: responses, as `client: …`, and the records that were written. Member ids are called after their clients, in the
order in which they were handed out: a1, a2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

from strandline.coordinator.decision import Now, Token
from strandline.coordinator.groups import Caller, GroupMachine
from strandline.coordinator.offset_requests import commit_offsets
from strandline.coordinator.records import GROUP_RECORDS, decode_record
from strandline.coordinator.settings import GroupSettings
from strandline.coordinator.shard import Shard, ShardSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from strandline.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from strandline.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.records.batch import batches, decode_batch
from strandline.simulation.loop import VirtualLoop
from unit.coordinator.memory_log import MemoryLog
from unit.coordinator.virtual_time import LoopClock

GROUP = "g"


@dataclass(slots=True)
class Client:
    name: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    options: dict[str, str] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class Stage:
    def __init__(self, **settings: int) -> None:
        self._settings = GroupSettings(**settings)
        self._loop = VirtualLoop()
        self._log = MemoryLog()
        self._random = Random(1)
        self._shard = self._new_shard()
        self._clients: dict[str, Client] = {}
        self._ids: dict[str, str] = {}
        self._said: list[str] = []
        self._logged = 0
        self._run(self._shard.load)

    def close(self) -> None:
        self._shard.unload(KafkaError(ErrorCode.NOT_COORDINATOR, "the test has ended"))
        self._run(self._settle)
        self._loop.close()

    def perform(self, line: str) -> list[str]:
        verb, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        act: Callable[[list[str], dict[str, str]], Coroutine[Any, Any, None]] = getattr(self, f"_{verb}")
        self._said = []
        self._run(lambda: self._act(act, names, options))
        return self._said

    async def _act(
        self,
        act: Callable[[list[str], dict[str, str]], Coroutine[Any, Any, None]],
        names: list[str],
        options: dict[str, str],
    ) -> None:
        await act(names, options)
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
            self._show_records()

    def _run(self, scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._loop.run_until_complete(scene())

    def _new_shard(self) -> Shard[GroupMachine]:
        machine = GroupMachine(lambda: self._settings, self._random)
        settings = ShardSettings(append_linger_ms=0, write_timeout_ms=5_000)
        return Shard(TopicPartition("__consumer_offsets", 0), self._log, machine, GROUP_RECORDS, LoopClock(), settings)

    # Verbs.

    async def _join(self, names: list[str], options: dict[str, str]) -> None:
        self._send_join(self._client(names[0]), options)

    async def _enter(self, names: list[str], options: dict[str, str]) -> None:
        client = self._client(names[0])
        self._send_join(client, options)
        await self._settle()
        if self._said and "MEMBER_ID_REQUIRED" in self._said[-1]:
            self._said.pop()
            self._send_join(client, options)

    def _send_join(self, client: Client, options: dict[str, str]) -> None:
        options = client.options = {**client.options, **options}
        client.instance_id = options.get("instance")
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=_ms(options.get("session", "30s")),
            rebalance_timeout_ms=_ms(options.get("rebalance", "60s")),
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            protocol_type=options.get("type", "consumer"),
            protocols=[
                JoinGroupRequestProtocol(name, options.get("metadata", "m").encode())
                for name in options.get("protocols", "range").split(",")
            ],
        )
        caller = Caller(client.name, "/127.0.0.1", int(options.get("version", "9")))
        self._send(client, lambda machine, token, now: machine.join(request, caller, token, now))

    async def _sync(self, names: list[str], options: dict[str, str]) -> None:
        client = self._client(names[0])
        assignments = [
            SyncGroupRequestAssignment(self._clients[name].member_id, text.encode()) for name, text in options.items()
        ]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            assignments=assignments,
        )
        caller = Caller(client.name, "/127.0.0.1", 4)
        self._send(client, lambda machine, token, now: machine.sync(request, caller, token, now))

    async def _heartbeat(self, names: list[str], options: dict[str, str]) -> None:
        client = self._client(names[0])
        generation = int(options.get("generation", client.generation))
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
        )
        self._send(client, lambda machine, token, now: machine.heartbeat(request, now))

    async def _leave(self, names: list[str], options: dict[str, str]) -> None:
        if names[0] == "instance":
            identities = [MemberIdentity("", names[1])]
            client = Client("administrator")
        else:
            clients = [self._client(name) for name in names]
            identities = [MemberIdentity(each.member_id, each.instance_id) for each in clients]
            client = clients[0]
        request = LeaveGroupRequest(group_id=GROUP, members=identities)
        caller = Caller(client.name, "/127.0.0.1", 5)
        self._send(client, lambda machine, token, now: machine.leave(request, caller, now))

    async def _commit(self, names: list[str], options: dict[str, str]) -> None:
        client = self._client(names[0])
        generation = int(options.pop("generation", client.generation))
        topics = []
        for partition, offset in options.items():
            topic, _, index = partition.rpartition("-")
            committed = OffsetCommitRequestPartition(int(index), int(offset))
            topics.append(OffsetCommitRequestTopic(topic, partitions=[committed]))
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            topics=topics,
        )
        self._send(client, lambda machine, token, now: commit_offsets(machine, request, 9, now))

    async def _restart(self, names: list[str], options: dict[str, str]) -> None:
        client = self._client(names[0])
        client.member_id, client.generation = "", -1

    async def _disconnect(self, names: list[str], options: dict[str, str]) -> None:
        for task in self._client(names[0]).tasks:
            task.cancel()

    async def _wait(self, names: list[str], options: dict[str, str]) -> None:
        await asyncio.sleep(_ms(names[0]) / 1000)

    async def _appends(self, names: list[str], options: dict[str, str]) -> None:
        self._log.failure = KafkaError(ErrorCode[names[1]], "as the scenario wants it") if names[0] == "fail" else None

    async def _replication(self, names: list[str], options: dict[str, str]) -> None:
        self._log.replicates = names[0] == "resumes"
        if self._log.replicates:
            self._log.commit()

    async def _failover(self, names: list[str], options: dict[str, str]) -> None:
        self._shard.unload(KafkaError(ErrorCode.NOT_COORDINATOR, "another broker leads"))
        await self._settle()
        self._log = self._log.successor()
        self._log.replicates = True
        self._log.commit()
        self._shard = self._new_shard()
        await self._shard.load()

    async def _group(self, names: list[str], options: dict[str, str]) -> None:
        group = self._shard.machine.group(GROUP)
        if group is None:
            self._said.append("there is no group")
            return
        members = [
            self._name(member.member_id) + ("" if not member.assignment else f":{member.assignment.decode()}")
            for member in group.members.values()
        ]
        leader = "" if group.leader_id is None else f", leader {self._name(group.leader_id)}"
        self._said.append(f"{group.state.value}, generation {group.generation}{leader}, members {_listed(members)}")
        if group.pending_joins:
            self._said.append(f"pending {_listed([self._name(each) for each in group.pending_joins])}")

    # Requests and what comes of them.

    def _client(self, name: str) -> Client:
        return self._clients.setdefault(name, Client(name))

    def _send(self, client: Client, decide: Callable[[GroupMachine, Token, Now], Any]) -> None:
        task = asyncio.get_running_loop().create_task(self._respond(client, decide))
        client.tasks.append(task)

    async def _respond(self, client: Client, decide: Callable[[GroupMachine, Token, Now], Any]) -> None:
        try:
            response = await self._shard.write(decide)
        except KafkaError as error:
            self._show_records()
            self._said.append(f"{client.name}: {error.code.name}")
        else:
            self._show_records()
            self._said.append(f"{client.name}: {self._told(client, response)}")

    def _told(self, client: Client, response: object) -> str:
        if isinstance(response, JoinGroupResponse):
            return self._joined(client, response)
        if isinstance(response, SyncGroupResponse):
            code = ErrorCode(response.error_code)
            return code.name if code else f"assigned {bytes(response.assignment).decode() or 'nothing'}"
        if isinstance(response, LeaveGroupResponse):
            return " ".join(ErrorCode(each.error_code).name for each in response.members)
        if isinstance(response, HeartbeatResponse):
            return ErrorCode(response.error_code).name
        return "committed"

    def _joined(self, client: Client, response: JoinGroupResponse) -> str:
        code = ErrorCode(response.error_code)
        if code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED) and response.member_id != client.member_id:
            self._name(response.member_id, client.name)
            client.member_id = response.member_id
        if code is not ErrorCode.NONE:
            return code.name + (f" {self._name(client.member_id)}" if code is ErrorCode.MEMBER_ID_REQUIRED else "")
        client.generation = response.generation_id
        text = f"joined as {self._name(response.member_id)}, generation {response.generation_id}"
        text += f", {response.protocol_name}, leader {self._name(response.leader)}"
        if response.members:
            members = [f"{self._name(each.member_id)}:{bytes(each.metadata).decode()}" for each in response.members]
            text += f", members {_listed(members)}"
        return text + (", skips the assignment" if response.skip_assignment else "")

    def _name(self, member_id: str, client: str | None = None) -> str:
        if member_id not in self._ids:
            group = self._shard.machine.group(GROUP)
            member = None if group is None else group.members.get(member_id)
            name = client or ("?" if member is None else member.client_id)
            count = sum(each.rstrip("0123456789") == name for each in self._ids.values())
            self._ids[member_id] = f"{name}{count + 1}"
        return self._ids[member_id]

    def _show_records(self) -> None:
        for batch in self._log.appended[self._logged :]:
            for position, _ in batches(memoryview(batch)):
                for record in decode_batch(memoryview(batch), position):
                    decoded = decode_record(GROUP_RECORDS, record.key, record.value)
                    assert decoded is not None
                    self._said.append("log: " + self._record(decoded.key, decoded.value))
        self._logged = len(self._log.appended)

    def _record(self, key: object, value: object) -> str:
        if isinstance(key, OffsetCommitKey):
            what = f"offset {value.offset}" if isinstance(value, OffsetCommitValue) else "tombstone"
            return f"{key.topic}-{key.partition} {what}"
        assert isinstance(key, GroupMetadataKey)
        if not isinstance(value, GroupMetadataValue):
            return "group tombstone"
        members = [
            f"{self._name(each.member_id, each.client_id)}:{bytes(each.assignment).decode() or 'nothing'}"
            for each in value.members
        ]
        leader = "" if value.leader is None else f", leader {self._name(value.leader)}"
        return f"group, generation {value.generation}, {value.protocol or 'no protocol'}{leader}, {_listed(members)}"


def _ms(text: str) -> int:
    return int(text[:-2]) if text.endswith("ms") else round(float(text[:-1]) * 1000)


def _listed(items: list[str]) -> str:
    return " ".join(items) if items else "none"
