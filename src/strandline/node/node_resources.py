"""The parts that the broker role and the controller role of a node share, built by `node/node` before either role."""

from __future__ import annotations

import msgspec

from strandline.client.peers import Peers
from strandline.metadata.image import Image
from strandline.model.ids import Uuid
from strandline.node.config import Config
from strandline.node.dynamic_config import DynamicConfig
from strandline.node.storage import Storage
from strandline.raft.shell.driver import Quorum
from strandline.runtime.metrics import Metrics
from strandline.runtime.tasks import TaskGroup
from strandline.runtime.world import World


class NodeResources(msgspec.Struct, frozen=True):
    config: Config
    world: World
    storage: Storage
    image: Image
    dynamic_config: DynamicConfig
    metrics: Metrics
    quorum: Quorum
    peers: Peers
    """Connections to the controllers of the cluster."""
    incarnation_id: Uuid
    """The incarnation of this process: a registration of the same node id with another id is another process."""
    tasks: TaskGroup
    """Tasks that run until the node stops."""

    @property
    def node_id(self) -> int:
        return self.config.node.node_id
