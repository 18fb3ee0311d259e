"""What the group machines of a broker have done so far, counted for metrics (`group_metrics`)."""

from __future__ import annotations

import msgspec


class GroupCounts(msgspec.Struct):
    """One value is shared by all shards of a broker."""

    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    """By OffsetDelete and DeleteGroups."""
    completed_rebalances: int = 0
    """Of classic groups."""
