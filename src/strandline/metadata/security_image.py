"""ACLs, SCRAM credentials and delegation tokens.

A part of `metadata.image`. The value of an entry is the record that created it.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.model.errors import NodeFault
from strandline.model.ids import Uuid
from strandline.model.timeline import Timeline, TimelineMap
from strandline.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from strandline.protocol.types import Message


class SecurityImage:
    def __init__(self, timeline: Timeline) -> None:
        self.acls: TimelineMap[Uuid, AccessControlEntryRecord] = TimelineMap(timeline)
        self.scram: TimelineMap[tuple[str, int], UserScramCredentialRecord] = TimelineMap(timeline)
        self.tokens: TimelineMap[str, DelegationTokenRecord] = TimelineMap(timeline)

    def replay_access_control_entry(self, record: AccessControlEntryRecord) -> None:
        self.acls[record.id] = record

    def replay_remove_access_control_entry(self, record: RemoveAccessControlEntryRecord) -> None:
        if record.id not in self.acls:
            raise NodeFault(f"ACL {record.id} is removed but does not exist")
        del self.acls[record.id]

    def replay_user_scram_credential(self, record: UserScramCredentialRecord) -> None:
        self.scram[record.name, record.mechanism] = record

    def replay_remove_user_scram_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        if (record.name, record.mechanism) not in self.scram:
            raise NodeFault(f"a SCRAM credential of {record.name!r} is removed but does not exist")
        del self.scram[record.name, record.mechanism]

    def replay_delegation_token(self, record: DelegationTokenRecord) -> None:
        self.tokens[record.token_id] = record

    def replay_remove_delegation_token(self, record: RemoveDelegationTokenRecord) -> None:
        if record.token_id in self.tokens:
            del self.tokens[record.token_id]

    def acl_records(self, moment: int) -> Iterator[Message]:
        yield from self.acls.values(moment)

    def scram_records(self, moment: int) -> Iterator[Message]:
        for _, record in sorted(self.scram.items(moment), key=lambda item: item[0]):
            yield record

    def token_records(self, moment: int) -> Iterator[Message]:
        for _, record in sorted(self.tokens.items(moment), key=lambda item: item[0]):
            yield record
