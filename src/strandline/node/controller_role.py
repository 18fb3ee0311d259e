"""The controller role of a node: it replays what the quorum commits, and is active while its replica leads.

Built and started by `node/node`. The quorum calls it when this node becomes leader or steps down. `methods` serve the
controller listener and this node's own broker; a controller that is not active responds NOT_CONTROLLER.
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
from strandline.node.lifecycle import Listeners, Send, registration_features, registration_listeners
from strandline.node.node_resources import NodeResources
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.brokers import ControllerRegistrationRequest, ControllerRegistrationResponse
from strandline.protocol.types import Message
from strandline.raft.shell.replay import QuorumListener

logger = logging.getLogger(__name__)

_REGISTRATION_RETRY_MS: Final = 500


class ControllerRole(QuorumListener):
    def __init__(self, node: NodeResources, bootstrap: Sequence[Message] | None) -> None:
        """`bootstrap` are the records of bootstrap.checkpoint, for the first active controller of the cluster."""
        self._node = node
        self.controller = Controller(
            node.image,
            node.quorum,
            node.world.clock,
            node.world.random,
            controller_settings(node),
            bootstrap if bootstrap is not None else bootstrap_records(),
            node.metrics,
            node.peers,
        )
        self.methods: Mapping[ApiKey, ControllerMethod] = controller_methods(self.controller, node.quorum.handle)

    def start(self) -> None:
        self.controller.register_metrics()
        self._node.quorum.register(self)
        self._node.tasks.start(self.controller.run(), "controller")

    def on_leading(self, epoch: int) -> None:
        self._node.tasks.start(self._activate(epoch), "controller activation")

    def on_stepped_down(self) -> None:
        self.controller.renounce()

    async def _activate(self, epoch: int) -> None:
        logger.info("node %d is the active controller of epoch %d", self._node.node_id, epoch)
        try:
            await self.controller.activate()
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            # This node lost leadership before the controller was active.

    def context(self) -> ControllerContext:
        node = self._node
        return ControllerContext(
            node_id=node.node_id,
            cluster_id=node.storage.cluster_id,
            image=node.image,
            kraft_version=lambda: node.quorum.kraft_version,
            config=node.dynamic_config,
            methods=self.methods,
            leader_id=lambda: node.quorum.leader.id,
            voters=lambda: node.quorum.voters,
            broker_connection_lost=self.controller.broker_connection_lost,
        )

    async def register(self, send: Send, listeners: Listeners) -> None:
        """Registers the endpoints and supported features of this controller; retries until it succeeds."""
        request = ControllerRegistrationRequest(
            controller_id=self._node.node_id,
            incarnation_id=self._node.incarnation_id,
            listeners=registration_listeners(listeners),
            features=registration_features(),
        )
        while True:
            try:
                # Older metadata versions do not record controllers; checked again in case of an upgrade.
                if self._node.image.committed.metadata_version >= CONTROLLERS_SINCE:
                    await send(request, ControllerRegistrationResponse)
                    return
            except KafkaError as error:
                logger.warning("registering this controller failed: %s", error)
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
