"""The cluster's metadata in memory: one replay for the active controller, standby controllers and brokers.

Records are replayed by the active controller when it appends them and by every other node once they are committed;
`commit` advances the committed offset. Two views read the same maps: the active controller decides on `latest`,
everything else reads `committed`. Neither is a copy.

Every record type of Kafka 4.3 is known; an unknown one stops the node, because skipping it would make this node differ
from the rest of the cluster without notice.

Metadata transactions: records between Begin and End are in `latest` but not in `committed` until the End is committed;
Abort reverts them. Invariant: the committed view never ends inside a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain
from typing import Any, Final

from strandline.metadata.cluster_image import ClusterImage
from strandline.metadata.configs_image import ConfigsImage
from strandline.metadata.security_image import SecurityImage
from strandline.metadata.topics_image import TopicsImage
from strandline.metadata.values import BrokerEndpoint, BrokerInfo, ControllerInfo, PartitionInfo, TopicInfo
from strandline.metadata.views import View
from strandline.model.errors import NodeFault
from strandline.model.timeline import LATEST, Timeline, TimelineMap, Touched
from strandline.protocol.messages import metadata_records as kinds
from strandline.protocol.types import Message

__all__ = ["BrokerEndpoint", "BrokerInfo", "ControllerInfo", "Image", "PartitionInfo", "TopicInfo", "View"]

# About two milliseconds of comparing.
_KEYS_PER_YIELD: Final = 2000


class Image:
    def __init__(self) -> None:
        self.timeline = Timeline()
        self.cluster = ClusterImage(self.timeline)
        self.topics = TopicsImage(self.timeline)
        self.configs = ConfigsImage(self.timeline)
        self.security = SecurityImage(self.timeline)
        self.latest = View(self, LATEST)
        self.committed = View(self, 0)
        self._replays = self._replay_table()
        self._offset = -1
        self._transactions = Transactions()
        self.commit_listeners: list[Callable[[list[Touched]], None]] = []
        """Called inside every commit, in this order: metrics that count what is committed."""

    @property
    def end_offset(self) -> int:
        """The first offset not replayed."""
        return self._offset + 1

    @property
    def transaction_open(self) -> bool:
        return self._transactions.open

    def replay(self, record: Message, offset: int) -> None:
        """One record of the batch that `mark` announced."""
        replay = self._replays.get(type(record))
        if replay is None:
            raise _unknown(record, offset)
        self._offset = offset
        replay(record)

    def replay_batch(self, base_offset: int, batch: Iterable[Message]) -> None:
        self.timeline.mark(base_offset)
        replays = self._replays
        for offset, record in enumerate(batch, base_offset):
            replay = replays.get(type(record))
            if replay is None:
                raise _unknown(record, offset)
            self._offset = offset
            replay(record)

    def mark(self, base_offset: int) -> None:
        """The records replayed next belong to the batch at this offset: they are committed or reverted together."""
        self.timeline.mark(base_offset)

    def skip_to(self, offset: int) -> None:
        """Offsets below this one contain no metadata records (control records of the quorum)."""
        self._offset = max(self._offset, offset - 1)

    def commit(self, offset: int) -> list[Touched]:
        """Everything below `offset` is committed; returns the keys that changed for readers of `committed`."""
        stable = self._transactions.commit(offset)
        touched = self.timeline.commit(stable)
        self.committed.moment = max(self.committed.moment, stable)
        for watch in self.commit_listeners:
            watch(touched)
        return touched

    def revert_to_committed(self, offset: int) -> None:
        """Reverts every record replayed from `offset` on: the leadership was lost."""
        self.timeline.revert_to(offset)
        self._transactions.revert_to(offset)
        self._offset = offset - 1

    def load(self, snapshot: Iterable[Message], offset: int) -> list[Touched]:
        """Replaces the whole image by a snapshot; returns, like `commit`, the keys that changed."""
        steps = self.load_in_steps([snapshot], offset)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    def load_in_steps(self, slices: Iterable[Iterable[Message]], offset: int) -> Generator[None, None, list[Touched]]:
        """Does what `load` does, with yields to the event loop; `committed` changes with the last step."""
        if self.timeline.committed == 0 and self._offset < 0:
            for slice_ in slices:
                for record in slice_:
                    self.replay(record, 0)
                yield
        else:
            yield from self._replace(slices, offset)
        self._offset = offset - 1
        return self.commit(offset)

    def _replace(self, slices: Iterable[Iterable[Message]], offset: int) -> Iterator[None]:
        if offset <= self.timeline.committed:
            raise NodeFault(
                f"a snapshot at offset {offset} is older than the committed offset {self.timeline.committed}"
            )
        loaded = Image()
        for slice_ in slices:
            for record in slice_:
                loaded.replay(record, 0)
            yield
        self.timeline.revert_to(self.timeline.committed)
        self._transactions = Transactions()
        self.timeline.mark(offset - 1)
        for mine, theirs in zip(self._maps(), loaded._maps(), strict=True):
            for step, key in enumerate(mine.keys(), 1):
                if key not in theirs:
                    del mine[key]
                if step % _KEYS_PER_YIELD == 0:
                    yield
            for step, (key, value) in enumerate(theirs.items(), 1):
                if mine.get(key) != value:
                    mine[key] = value
                if step % _KEYS_PER_YIELD == 0:
                    yield

    def _maps(self) -> Iterator[TimelineMap[Any, Any]]:
        for part in (self.cluster, self.topics, self.configs, self.security):
            yield from vars(part).values()

    def pin(self) -> View:
        """A view of the current committed offset that stays readable during later commits, until `unpin`."""
        view = View(self, self.committed.moment)
        self.timeline.pin(view.moment)
        return view

    def unpin(self, view: View) -> None:
        self.timeline.unpin(view.moment)

    def records(self, view: View) -> Iterator[Message]:
        """The records of a snapshot of `view`, in the order of Kafka's snapshots. Lazy, so pin the view first."""
        moment = view.moment
        return chain(
            self.cluster.feature_records(moment),
            self.cluster.member_records(moment),
            self.topics.records(moment, view.metadata_version),
            self.configs.config_records(moment),
            self.configs.quota_records(moment),
            self.cluster.producer_id_records(moment),
            self.security.acl_records(moment),
            self.security.scram_records(moment),
            self.security.token_records(moment),
        )

    def _replay_table(self) -> dict[type[Message], Callable[[Any], None]]:
        cluster, topics, configs, security = self.cluster, self.topics, self.configs, self.security
        return {
            kinds.RegisterBrokerRecord: cluster.replay_register_broker,
            kinds.UnregisterBrokerRecord: cluster.replay_unregister_broker,
            kinds.TopicRecord: topics.replay_topic,
            kinds.PartitionRecord: topics.replay_partition,
            kinds.ConfigRecord: configs.replay_config,
            kinds.PartitionChangeRecord: topics.replay_partition_change,
            kinds.FenceBrokerRecord: cluster.replay_fence_broker,
            kinds.UnfenceBrokerRecord: cluster.replay_unfence_broker,
            kinds.RemoveTopicRecord: self._replay_remove_topic,
            kinds.DelegationTokenRecord: security.replay_delegation_token,
            kinds.UserScramCredentialRecord: security.replay_user_scram_credential,
            kinds.FeatureLevelRecord: cluster.replay_feature_level,
            kinds.ClientQuotaRecord: configs.replay_client_quota,
            kinds.ProducerIdsRecord: cluster.replay_producer_ids,
            kinds.BrokerRegistrationChangeRecord: cluster.replay_broker_registration_change,
            kinds.AccessControlEntryRecord: security.replay_access_control_entry,
            kinds.RemoveAccessControlEntryRecord: security.replay_remove_access_control_entry,
            kinds.NoOpRecord: _replay_nothing,
            kinds.ZkMigrationStateRecord: cluster.replay_zk_migration_state,
            kinds.RemoveUserScramCredentialRecord: security.replay_remove_user_scram_credential,
            kinds.BeginTransactionRecord: self._replay_begin_transaction,
            kinds.EndTransactionRecord: self._replay_end_transaction,
            kinds.AbortTransactionRecord: self._replay_abort_transaction,
            kinds.RemoveDelegationTokenRecord: security.replay_remove_delegation_token,
            kinds.RegisterControllerRecord: cluster.replay_register_controller,
            kinds.ClearElrRecord: topics.replay_clear_elr,
        }

    def _replay_remove_topic(self, record: kinds.RemoveTopicRecord) -> None:
        topic = self.topics.replay_remove_topic(record)
        self.configs.remove_topic_configs(topic.name)

    def _replay_begin_transaction(self, record: kinds.BeginTransactionRecord) -> None:
        # Marked even in mid-batch: the committed view stays before this record until the transaction ends.
        self.timeline.mark(self._offset)
        self._transactions.begin(self._offset)

    def _replay_end_transaction(self, record: kinds.EndTransactionRecord) -> None:
        self._transactions.end(self._offset)

    def _replay_abort_transaction(self, record: kinds.AbortTransactionRecord) -> None:
        self.timeline.mark(self._offset)
        self.timeline.undo_since(self._transactions.end(self._offset))


class Transactions:
    """Offsets of metadata transactions whose end is not committed."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int | None]] = []

    @property
    def open(self) -> bool:
        return bool(self._spans) and self._spans[-1][1] is None

    def begin(self, offset: int) -> None:
        if self.open:
            raise NodeFault(f"a metadata transaction begins at {offset} inside the one from {self._spans[-1][0]}")
        self._spans.append((offset, None))

    def end(self, offset: int) -> int:
        """Returns the offset at which the transaction began."""
        if not self.open:
            raise NodeFault(f"a metadata transaction ends at {offset} but none began")
        begin, _ = self._spans[-1]
        self._spans[-1] = (begin, offset)
        return begin

    def commit(self, offset: int) -> int:
        """The offset up to which the committed view may advance."""
        self._spans = [(begin, end) for begin, end in self._spans if end is None or end >= offset]
        return min(offset, self._spans[0][0]) if self._spans else offset

    def revert_to(self, offset: int) -> None:
        self._spans = [
            (begin, None if end is not None and end >= offset else end) for begin, end in self._spans if begin < offset
        ]


def _unknown(record: Message, offset: int) -> NodeFault:
    return NodeFault(f"unknown metadata record {type(record).__name__} at offset {offset}")


def _replay_nothing(record: Message) -> None:
    """A NoOpRecord only advances the offset."""
