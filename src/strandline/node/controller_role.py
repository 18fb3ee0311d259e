"""A node as a controller: it stands by, replays what the quorum commits, and is active while its replica leads.

Made by `node`. The quorum says when to lead and when to step down; `methods` are what the controller listener and this
node's own broker ask, active or not: a controller that does not lead answers NOT_CONTROLLER.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from strandline.controller.controller import Controller
from strandline.controller.settings import ControllerSettings
from strandline.handlers.context import ControllerContext, ControllerMethod
from strandline.handlers.tables import controller_methods
from strandline.metadata.features import bootstrap_records
from strandline.metadata.record_versions import CONTROLLERS_SINCE
from strandline.model.errors import ErrorCode, KafkaError
from strandline.node.lifecycle import Listeners, Send, wire_features, wire_listeners
from strandline.node.node_resources import NodeResources
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.brokers import ControllerRegistrationRequest, ControllerRegistrationResponse
from strandline.protocol.types import Message

logger = logging.getLogger(__name__)

_REGISTRATION_RETRY_MS: Final = 500


class ControllerRole:
    def __init__(self, base: NodeResources, bootstrap: Sequence[Message] | None) -> None:
        """`bootstrap` is what formatting left for the first active controller of the cluster."""
        self._base = base
        self.controller = Controller(
            base.image,
            base.quorum,
            base.world.clock,
            base.world.random,
            controller_settings(base),
            bootstrap if bootstrap is not None else bootstrap_records(),
            base.metrics,
            base.peers,
        )
        self.methods: Mapping[ApiKey, ControllerMethod] = controller_methods(self.controller, base.quorum.handle)
        base.quorum.on_leading = self._lead
        base.quorum.on_stepped_down = self.controller.renounce

    def start(self) -> None:
        self._base.tasks.start(self.controller.run(), "controller")

    def _lead(self, epoch: int) -> None:
        self._base.tasks.start(self._activate(epoch), "controller activation")

    async def _activate(self, epoch: int) -> None:
        logger.info("node %d is the active controller of epoch %d", self._base.node_id, epoch)
        try:
            await self.controller.activate()
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            # The lead was lost before it was taken up.

    def context(self) -> ControllerContext:
        base = self._base
        return ControllerContext(
            node_id=base.node_id,
            cluster_id=base.storage.cluster_id,
            image=base.image,
            kraft_version=lambda: base.quorum.kraft_version,
            settings=base.dynamic_config,
            methods=self.methods,
            leader_id=lambda: base.quorum.leader.id,
            voters=lambda: base.quorum.voters,
            broker_connection_lost=self.controller.broker_connection_lost,
        )

    async def register(self, send: Send, listeners: Listeners) -> None:
        """Says where this controller is and what it supports: feature upgrades ask for that. Until it is known."""
        request = ControllerRegistrationRequest(
            controller_id=self._base.node_id,
            incarnation_id=self._base.incarnation_id,
            listeners=wire_listeners(listeners),
            features=wire_features(),
        )
        while True:
            try:
                # Older metadata has no place for it; an upgrade may come.
                if self._base.image.committed.metadata_version >= CONTROLLERS_SINCE:
                    await send(request, ControllerRegistrationResponse)
                    return
            except KafkaError as error:
                logger.warning("this controller is not registered yet: %s", error)
            await asyncio.sleep(_REGISTRATION_RETRY_MS / 1000)


def controller_settings(node: NodeResources) -> ControllerSettings:
    config = node.config
    return config.settings(
        ControllerSettings,
        node_id=node.node_id,
        cluster_id=node.storage.cluster_id,
        leader_imbalance_check_interval_ms=config.integer("leader.imbalance.check.interval.seconds") * 1000,
        incarnation_id=node.incarnation_id if config.node.is_broker else None,
        configured_voters=tuple(sorted(voter.id for voter in config.quorum.voters)),
        static=config.static,
    )
