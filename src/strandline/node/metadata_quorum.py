"""Opens this node's replica of the metadata quorum from its config and its directories.

A controller whose metadata log is damaged does not start, since it may lack records that it acknowledged. A broker
acknowledges nothing to the quorum: it renames the damaged log and fetches the metadata again before it registers.
"""

from __future__ import annotations

import logging
from functools import partial

from strandline.client.peers import Peers
from strandline.log import names
from strandline.metadata.image import Image
from strandline.model.ids import METADATA_PARTITION
from strandline.node.config import Config
from strandline.node.storage import Storage
from strandline.raft.disk.opening import MetadataDamaged
from strandline.raft.disk.storage import MetadataStorage, StorageSettings
from strandline.raft.machine.settings import QuorumSettings
from strandline.raft.machine.voters import Voter, VoterSet
from strandline.raft.shell.driver import Quorum
from strandline.raft.shell.snapshot_generator import SnapshotSettings
from strandline.runtime.metrics import Metrics
from strandline.runtime.world import World

logger = logging.getLogger(__name__)


async def open_quorum(
    config: Config, storage: Storage, world: World, image: Image, peers: Peers, metrics: Metrics
) -> Quorum:
    """Opens the quorum and replays what is known to be committed. It takes part in the quorum once it is `run`."""
    offload = world.metadata_offload or world.offload
    log = await offload.run(partial(open_metadata_log, config, storage.metadata_log_dir, world))
    quorum = Quorum(
        log,
        image,
        world.clock,
        offload,
        peers,
        world.random,
        me=_local_voter(config, storage),
        cluster_id=storage.cluster_id,
        is_controller=config.node.is_controller,
        settings=config.settings(QuorumSettings),
        configured_voters=_configured_voters(config),
        bootstrap=config.quorum.bootstrap_servers,
        snapshot_settings=config.settings(SnapshotSettings),
        append_linger_ms=config.integer("controller.quorum.append.linger.ms"),
        metrics=metrics,
    )
    await quorum.start()
    return quorum


def open_metadata_log(config: Config, directory: str, world: World) -> MetadataStorage:
    """Blocking. Opens the metadata log, or creates it."""
    open_log = partial(
        MetadataStorage.open,
        world.disk,
        directory,
        wall_ms=world.clock.wall_ms(),
        settings=config.settings(StorageSettings),
    )
    try:
        return open_log()
    except MetadataDamaged as damage:
        if config.node.is_controller:
            raise
        # Neither Strandline nor Kafka opens a directory of this name as a log.
        aside = f"{directory}/{names.suffixed_directory(METADATA_PARTITION, names.STRAY_DIRECTORY, world.random)}"
        logger.error("%s. It is renamed to %s, and all metadata is fetched again", damage.what, aside)
        world.disk.rename(f"{directory}/{METADATA_PARTITION}", aside)
        world.disk.sync_dir(directory)
        return open_log()


def _local_voter(config: Config, storage: Storage) -> Voter:
    listeners = tuple((each.name, each.advertised(each.port)) for each in config.listeners if each.controller)
    return Voter(config.node.node_id, storage.directory_ids[storage.metadata_log_dir], listeners)


def _configured_voters(config: Config) -> VoterSet | None:
    """The voters in `controller.quorum.voters`, for a quorum with static voters."""
    voters = sorted(config.quorum.voters)
    name = config.controller_listener_names[0]
    if not voters:
        return None
    return VoterSet(tuple(Voter(each.id, listeners=((name, each.endpoint),)) for each in voters))
