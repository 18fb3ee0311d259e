"""What both roles of a node stand on, made once by `node` before either begins."""

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
    settings: DynamicConfig
    metrics: Metrics
    quorum: Quorum
    peers: Peers
    """To the controllers of the cluster."""
    incarnation_id: Uuid
    """Of this process: whoever registers under the same node id with another one is another process."""
    tasks: TaskGroup
    """Everything that runs for as long as the node does."""

    @property
    def node_id(self) -> int:
        return self.config.node.node_id
