"""Removal of expired delegation tokens. (No request creates one yet: that comes with authentication.)"""

from __future__ import annotations

from typing import Final

from strandline.controller.decisions import Decision
from strandline.metadata.views import View
from strandline.protocol.messages.metadata_records import RemoveDelegationTokenRecord
from strandline.protocol.types import Message

_MAX_PER_DECISION: Final = 1000


def expire_tokens(view: View, wall_ms: int) -> Decision[bool]:
    """The response says whether there are more."""
    expired = [
        token.token_id
        for token in view.tokens()
        if token.expiration_timestamp < wall_ms or token.max_timestamp < wall_ms
    ]
    removed = sorted(expired)[:_MAX_PER_DECISION]
    records: list[Message] = [RemoveDelegationTokenRecord(token_id=token_id) for token_id in removed]
    return Decision(len(expired) > _MAX_PER_DECISION, records)
