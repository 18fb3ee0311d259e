"""The version in which a metadata record is written, by the cluster's metadata.version.

Called where records are encoded (the log, the snapshot writer), so that decisions need not know versions. Every node of
the cluster must be able to read a record, so its version depends on the finalized level. Like Kafka,
BrokerRegistrationChangeRecord takes the lowest version that contains its fields.
"""

from __future__ import annotations

from typing import Final

from strandline.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from strandline.protocol.types import Message

# (metadata.version, the record version that it introduced), oldest first; a record not listed has version 0 only.
_SINCE: Final[dict[type[Message], tuple[tuple[int, int], ...]]] = {
    RegisterBrokerRecord: ((7, 1), (8, 2), (17, 3), (30, 4)),
    PartitionRecord: ((17, 1), (23, 2)),
    PartitionChangeRecord: ((17, 1), (23, 2)),
}

MINIMUM_METADATA_VERSION: Final = 7
LATEST_METADATA_VERSION: Final = 30
# Levels that introduced records or fields: a downgrade across one might lose metadata.
FORMAT_CHANGES: Final = (8, 11, 13, 14, 15, 17, 23, 30)
SCRAM_SINCE: Final = 11
TRANSACTIONS_SINCE: Final = 13
TOKENS_SINCE: Final = 14
CONTROLLERS_SINCE: Final = 15
DIRECTORIES_SINCE: Final = 17
ELR_SINCE: Final = 23
CORDONED_DIRECTORIES_SINCE: Final = 30


def record_version(record: Message, metadata_version: int) -> int:
    if isinstance(record, BrokerRegistrationChangeRecord):
        if record.cordoned_log_dirs is not None:
            return 3
        return 2 if record.log_dirs else min(record.in_controlled_shutdown, 1)
    version = 0
    for level, newer in _SINCE.get(type(record), ()):
        if metadata_version < level:
            break
        version = newer
    return version
