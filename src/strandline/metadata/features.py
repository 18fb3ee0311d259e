"""Feature levels: what this program understands, what it serves, and what a new cluster starts with.

Asked by `handlers/api_versions` and registrations (what we support), `controller/features` (what may be finalized) and
formatting (the bootstrap records).

Understanding and serving differ on purpose. A directory that Apache Kafka wrote may have finalized more than we serve
yet; its metadata is readable all the same, so we must not refuse it. But a cluster of ours never *raises* a feature
above what it serves: the level is a promise to clients.
"""

from __future__ import annotations

from typing import Final

from strandline.metadata.cluster_image import METADATA_VERSION
from strandline.metadata.record_versions import LATEST_METADATA_VERSION, MINIMUM_METADATA_VERSION
from strandline.protocol.messages.metadata_records import FeatureLevelRecord
from strandline.protocol.types import Message

ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"
KRAFT_VERSION: Final = "kraft.version"

SUPPORTED_FEATURES: Final[dict[str, tuple[int, int]]] = {
    ELIGIBLE_LEADER_REPLICAS: (0, 1),
    "group.version": (0, 1),
    KRAFT_VERSION: (0, 1),
    METADATA_VERSION: (MINIMUM_METADATA_VERSION, LATEST_METADATA_VERSION),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}
"""(lowest, highest) level that we can live with."""

SERVED_FEATURES: Final[dict[str, int]] = {
    ELIGIBLE_LEADER_REPLICAS: 1,
    KRAFT_VERSION: 1,
    METADATA_VERSION: LATEST_METADATA_VERSION,
}
"""The highest level that we finalize; a feature not named here stays at 0."""

# From this level on, a new cluster tracks eligible leader replicas unless told otherwise.
_ELR_BY_DEFAULT_SINCE: Final = 26


def bootstrap_records(metadata_version: int = LATEST_METADATA_VERSION) -> list[Message]:
    """What `storage format` writes for a new cluster. The metadata version comes first."""
    records: list[Message] = [FeatureLevelRecord(name=METADATA_VERSION, feature_level=metadata_version)]
    if metadata_version >= _ELR_BY_DEFAULT_SINCE:
        records.append(FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS, feature_level=1))
    return records
