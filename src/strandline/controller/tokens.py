"""Delegation tokens that have had their time. (Nobody can ask for one yet: that comes with authentication.)"""

from __future__ import annotations

from typing import Final

from strandline.controller.decisions import Decision
from strandline.metadata.views import View
from strandline.protocol.messages.metadata_records import RemoveDelegationTokenRecord
from strandline.protocol.types import Message

_AT_ONCE: Final = 1000


def expire(view: View, wall_ms: int) -> Decision[bool]:
    """The answer: whether there may be more of them."""
    expired = [
        token.token_id
        for token in view.tokens()
        if token.expiration_timestamp < wall_ms or token.max_timestamp < wall_ms
    ]
    records: list[Message] = [RemoveDelegationTokenRecord(token_id=token_id) for token_id in sorted(expired)[:_AT_ONCE]]
    return Decision(len(expired) > _AT_ONCE, records)
