"""Feature levels: those that this program can read, those that it finalizes, and those of a new cluster.

Used by `handlers/api_versions` and registrations (supported levels), `controller/features` (what may be finalized) and
`storage format` (the bootstrap records).

The two differ on purpose. A directory written by Apache Kafka may have finalized a level that is not served here yet;
its metadata is readable, so it is accepted. But Strandline never *raises* a feature above what it serves: clients rely
on the finalized level.
"""

from __future__ import annotations

from typing import Final

from strandline.metadata.cluster_image import METADATA_VERSION
from strandline.metadata.record_versions import LATEST_METADATA_VERSION, MINIMUM_METADATA_VERSION
from strandline.protocol.messages.metadata_records import FeatureLevelRecord
from strandline.protocol.types import Message

ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"
GROUP_VERSION: Final = "group.version"
KRAFT_VERSION: Final = "kraft.version"
TRANSACTION_VERSION: Final = "transaction.version"

SUPPORTED_FEATURES: Final[dict[str, tuple[int, int]]] = {
    ELIGIBLE_LEADER_REPLICAS: (0, 1),
    GROUP_VERSION: (0, 1),
    KRAFT_VERSION: (0, 1),
    METADATA_VERSION: (MINIMUM_METADATA_VERSION, LATEST_METADATA_VERSION),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    TRANSACTION_VERSION: (0, 2),
}
"""(lowest, highest) level that can be read."""

SERVED_FEATURES: Final[dict[str, int]] = {
    ELIGIBLE_LEADER_REPLICAS: 1,
    GROUP_VERSION: 1,
    KRAFT_VERSION: 1,
    METADATA_VERSION: LATEST_METADATA_VERSION,
    TRANSACTION_VERSION: 2,
}
"""The highest level that is finalized here; a feature not listed stays at 0."""

# From this level on, a new cluster enables eligible leader replicas by default.
_ELR_BY_DEFAULT_SINCE: Final = 26
# From this level on (4.0-IV0), a new cluster serves consumer groups (KIP-848).
_CONSUMER_GROUPS_SINCE: Final = 22
# From this level on (4.0-IV2), a new cluster uses transactions of version 2 (KIP-890).
_TRANSACTIONS_V2_SINCE: Final = 24


def bootstrap_records(metadata_version: int = LATEST_METADATA_VERSION) -> list[Message]:
    """The records that `storage format` writes for a new cluster. metadata.version comes first."""
    records: list[Message] = [FeatureLevelRecord(name=METADATA_VERSION, feature_level=metadata_version)]
    if metadata_version >= _ELR_BY_DEFAULT_SINCE:
        records.append(FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS, feature_level=1))
    if metadata_version >= _CONSUMER_GROUPS_SINCE:
        records.append(FeatureLevelRecord(name=GROUP_VERSION, feature_level=1))
    if metadata_version >= _TRANSACTIONS_V2_SINCE:
        records.append(FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=2))
    return records
