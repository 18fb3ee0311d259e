"""The active controller: one event at a time, decide → append → replay → answer when committed.

Machines (`topics`, `brokers`, `configs` …) decide on the latest view and return records and an answer. This shell
replays the records into the image at once, so that the next decision sees them, hands them to the log, lets the next
event begin, and gives the answer when the log has committed them. It does not know who makes them durable: it sees the
`MetadataLog` port only.

Callers (handlers through `node`, the broker's own lifecycle) await one method per request. `run` is the controller's
clockwork; `activate` and `renounce` follow the leadership of the log.

Losing leadership: the log's watermark is lost, which fails everything that waits for a commit with NOT_CONTROLLER;
`renounce` takes back what was replayed but not committed; a decision caught in the middle notices when it next draws
breath, and writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, TypeVar

from strandline.controller import producer_ids
from strandline.controller.brokers import Brokers
from strandline.controller.configs import Configs
from strandline.controller.decisions import MAX_RECORDS_PER_DECISION, Decision, Steps
from strandline.controller.features import Features
from strandline.controller.port import MetadataLog
from strandline.controller.settings import ControllerSettings
from strandline.controller.topics import Topics
from strandline.metadata.image import Image
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.brokers import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from strandline.protocol.messages.cluster import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from strandline.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from strandline.protocol.messages.metadata_records import AbortTransactionRecord
from strandline.protocol.messages.producers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from strandline.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from strandline.protocol.types import Message
from strandline.runtime.clock import Clock

A = TypeVar("A")

# About two milliseconds of replay.
_RECORDS_PER_BREATH: Final = 500


class Controller:
    def __init__(
        self,
        image: Image,
        log: MetadataLog,
        clock: Clock,
        random: Random,
        settings: ControllerSettings,
        bootstrap: Sequence[Message] = (),
    ) -> None:
        """`bootstrap` is what the first active controller of a cluster writes (see `metadata.features`)."""
        self._image = image
        self._log = log
        self._clock = clock
        self._settings = settings
        self._bootstrap = bootstrap
        self._turn = asyncio.Lock()
        self._active_epoch: int | None = None
        self.brokers = Brokers(image.latest, settings)
        self._topics = Topics(image.latest, settings, random)
        self._configs = Configs(image.latest, settings)
        self._features = Features(image.latest, settings, lambda: log.kraft_version)

    @property
    def is_active(self) -> bool:
        return self._active_epoch is not None and self._log.is_leader and self._active_epoch == self._log.epoch

    async def activate(self) -> None:
        """The log is ours, and everything in it is replayed: finish what a predecessor began, then take requests."""
        self._active_epoch = self._log.epoch
        self.brokers.activate(self._clock.now_ms())
        if self._image.transaction_open:
            await self._event(lambda: Decision(None, [AbortTransactionRecord(reason="the controller changed")]))
        if self._image.latest.metadata_version == 0:
            await self._event(lambda: Decision(None, self._features.bootstrap(self._bootstrap)))

    def renounce(self) -> None:
        """The log is another's: nothing that we replayed beyond its committed part ever happened."""
        self._active_epoch = None
        self._image.revert_to_committed(self._log.committed.value)

    async def run(self) -> None:
        """Fences the brokers that fell silent, for as long as this controller is active. Ends by cancellation."""
        while True:
            now_ms = self._clock.now_ms()
            deadline_ms = self.brokers.sessions.next_deadline_ms()
            wait_ms = self._settings.broker_session_timeout_ms if deadline_ms is None else deadline_ms - now_ms
            if wait_ms > 0:
                await asyncio.sleep(wait_ms / 1000)
                continue
            for broker_id in self.brokers.sessions.expired(now_ms):
                await self._fence(broker_id)

    async def _fence(self, broker_id: int) -> None:
        def decide() -> Decision[None] | Steps[None]:
            # It may have been heard while other events had their turn.
            if broker_id not in self.brokers.sessions.expired(self._clock.now_ms()):
                return Decision(None)
            return self.brokers.fence(broker_id)

        try:
            await self._event(decide)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            self.brokers.sessions.end(broker_id)

    async def create_topics(self, request: CreateTopicsRequest, version: int = 7) -> CreateTopicsResponse:
        return await self._event(lambda: self._topics.create(request), request.timeout_ms)

    async def create_partitions(self, request: CreatePartitionsRequest, version: int = 3) -> CreatePartitionsResponse:
        return await self._event(lambda: self._topics.create_partitions(request), request.timeout_ms)

    async def delete_topics(self, request: DeleteTopicsRequest, version: int = 6) -> DeleteTopicsResponse:
        return await self._event(lambda: self._topics.delete(request, version), request.timeout_ms)

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, version: int = 1
    ) -> IncrementalAlterConfigsResponse:
        return await self._event(lambda: self._configs.alter_incrementally(request))

    async def alter_configs(self, request: AlterConfigsRequest, version: int = 2) -> AlterConfigsResponse:
        return await self._event(lambda: self._configs.alter(request))

    async def register_broker(self, request: BrokerRegistrationRequest, version: int = 4) -> BrokerRegistrationResponse:
        return await self._event(lambda: self.brokers.register(request, self._log.end_offset, self._clock.now_ms()))

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest, version: int = 2) -> BrokerHeartbeatResponse:
        return await self._event(lambda: self.brokers.heartbeat(request, self._log.end_offset, self._clock.now_ms()))

    async def unregister_broker(self, request: UnregisterBrokerRequest, version: int = 0) -> UnregisterBrokerResponse:
        return await self._event(lambda: self.brokers.unregister(request))

    async def register_controller(
        self, request: ControllerRegistrationRequest, version: int = 0
    ) -> ControllerRegistrationResponse:
        return await self._event(lambda: self.brokers.register_controller(request))

    async def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, version: int = 0
    ) -> AllocateProducerIdsResponse:
        return await self._event(lambda: producer_ids.allocate(self._image.latest, request))

    async def update_features(self, request: UpdateFeaturesRequest, version: int = 2) -> UpdateFeaturesResponse:
        return await self._event(lambda: self._features.update(request, version), request.timeout_ms)

    async def _event(self, decide: Callable[[], Decision[A] | Steps[A]], timeout_ms: int | None = None) -> A:
        """One event. Whoever comes while another is being decided waits in line; a full line may cost the deadline."""
        deadline_ms = None if timeout_ms is None else self._clock.now_ms() + timeout_ms
        async with self._turn:
            self._check_active()
            if deadline_ms is not None and self._clock.now_ms() >= deadline_ms:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the controller was too busy to decide in time")
            committed = self._log.committed
            decided = decide()
            decision = decided if isinstance(decided, Decision) else await self._at_ease(decided)
            await self._apply(decision)
            # Without records of its own an answer rests on those of decisions before it, so it waits for these.
            until = self._log.end_offset
        await committed.reached(until)
        return decision.answer

    async def _at_ease(self, steps: Steps[A]) -> Decision[A]:
        """Runs a long decision, letting the loop breathe where it yields."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            await self._breathe()

    async def _apply(self, decision: Decision[Any]) -> None:
        records = decision.records
        if decision.atomic and len(records) > MAX_RECORDS_PER_DECISION + 1000:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{len(records)} records are too many for one decision")
        if decision.atomic:
            await self._append(records)
            return
        for first in range(0, len(records), MAX_RECORDS_PER_DECISION):
            await self._append(records[first : first + MAX_RECORDS_PER_DECISION])

    async def _append(self, records: Sequence[Message]) -> None:
        """Replays, then appends: what cannot be replayed must not be written."""
        if not records:
            return
        base_offset = self._log.end_offset
        self._image.mark(base_offset)
        try:
            for index, record in enumerate(records):
                self._image.replay(record, base_offset + index)
                if index % _RECORDS_PER_BREATH == _RECORDS_PER_BREATH - 1:
                    await self._breathe()
            if self._log.end_offset != base_offset:
                raise AssertionError("somebody else wrote to the log while a decision was being replayed")
            self._log.append(records)
        except BaseException:
            if self.is_active:
                self._image.revert_to_committed(base_offset)
            raise

    async def _breathe(self) -> None:
        await asyncio.sleep(0)
        self._check_active()

    def _check_active(self) -> None:
        if not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")
