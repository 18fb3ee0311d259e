"""The metadata of the cluster in memory: one replay for controller, standby and broker.

Records go in with `replay` (by the active controller the moment it appends them, by everybody else once they are
committed), and `commit` says how far they are settled. Two views stand on the same maps: `latest` is what the active
controller decides on, `committed` is what everybody may act on and clients may see. Neither is a copy.

Every record type of Kafka 4.3 is understood; an unknown one stops the node, since skipping it would mean to disagree
with the rest of the cluster in silence.

Metadata transactions: records between Begin and End are in `latest` but not in `committed` until the End is committed;
Abort takes them back. Invariant: the committed view never stands inside a transaction.
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
_KEYS_PER_BREATH: Final = 2000


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
        """Told inside every commit, in this order, before anybody else: those who count what is committed."""

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
        """The records replayed next are those of the batch at this offset: settled or undone together."""
        self.timeline.mark(base_offset)

    def skip_to(self, offset: int) -> None:
        """Offsets below this one carry nothing for the image (control records of the quorum)."""
        self._offset = max(self._offset, offset - 1)

    def commit(self, offset: int) -> list[Touched]:
        """Everything below `offset` is committed; the answer says what that changed for readers of `committed`."""
        stable = self._transactions.commit(offset)
        touched = self.timeline.commit(stable)
        self.committed.moment = max(self.committed.moment, stable)
        for watch in self.commit_listeners:
            watch(touched)
        return touched

    def revert_to_committed(self, offset: int) -> None:
        """Leadership is lost: what was replayed from `offset` on never happened."""
        self.timeline.revert_to(offset)
        self._transactions.revert_to(offset)
        self._offset = offset - 1

    def load(self, snapshot: Iterable[Message], offset: int) -> list[Touched]:
        """Becomes what a snapshot says, whatever was here; told, like `commit`, as the keys that changed."""
        loading = self.loading([snapshot], offset)
        while True:
            try:
                next(loading)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    def loading(self, slices: Iterable[Iterable[Message]], offset: int) -> Generator[None, None, list[Touched]]:
        """As `load`, yielding now and then so that the loop may breathe; `committed` changes with the last step."""
        if self.timeline.committed == 0 and self._offset < 0:
            for slice_ in slices:
                for record in slice_:
                    self.replay(record, 0)
                yield
        else:
            yield from self._become(slices, offset)
        self._offset = offset - 1
        return self.commit(offset)

    def _become(self, slices: Iterable[Iterable[Message]], offset: int) -> Iterator[None]:
        if offset <= self.timeline.committed:
            raise NodeFault(f"a snapshot at {offset} would take metadata back from {self.timeline.committed}")
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
                if step % _KEYS_PER_BREATH == 0:
                    yield
            for step, (key, value) in enumerate(theirs.items(), 1):
                if mine.get(key) != value:
                    mine[key] = value
                if step % _KEYS_PER_BREATH == 0:
                    yield

    def _maps(self) -> Iterator[TimelineMap[Any, Any]]:
        for part in (self.cluster, self.topics, self.configs, self.security):
            yield from vars(part).values()

    def pin(self) -> View:
        """The committed moment, kept readable while the node moves on; give it back with `unpin`."""
        view = View(self, self.committed.moment)
        self.timeline.pin(view.moment)
        return view

    def unpin(self, view: View) -> None:
        self.timeline.unpin(view.moment)

    def records(self, view: View) -> Iterator[Message]:
        """The records that rebuild what `view` sees, in the order of Kafka's snapshots. Lazy, so pin the view first."""
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
        self.configs.forget_topic(topic.name)

    def _replay_begin_transaction(self, record: kinds.BeginTransactionRecord) -> None:
        # A moment of its own, even in mid-batch: the committed view waits exactly here.
        self.timeline.mark(self._offset)
        self._transactions.begin(self._offset)

    def _replay_end_transaction(self, record: kinds.EndTransactionRecord) -> None:
        self._transactions.end(self._offset)

    def _replay_abort_transaction(self, record: kinds.AbortTransactionRecord) -> None:
        self.timeline.mark(self._offset)
        self.timeline.undo_since(self._transactions.end(self._offset))


class Transactions:
    """Where metadata transactions begin and end, as far as their end is not committed."""

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
        """The offset at which the transaction that ends here began."""
        if not self.open:
            raise NodeFault(f"a metadata transaction ends at {offset} but none began")
        begin, _ = self._spans[-1]
        self._spans[-1] = (begin, offset)
        return begin

    def commit(self, offset: int) -> int:
        """How much of what lies below `offset` may be seen."""
        self._spans = [(begin, end) for begin, end in self._spans if end is None or end >= offset]
        return min(offset, self._spans[0][0]) if self._spans else offset

    def revert_to(self, offset: int) -> None:
        self._spans = [
            (begin, None if end is not None and end >= offset else end) for begin, end in self._spans if begin < offset
        ]


def _unknown(record: Message, offset: int) -> NodeFault:
    return NodeFault(f"metadata record {type(record).__name__} at offset {offset} has no meaning here")


def _replay_nothing(record: Message) -> None:
    """A NoOp: its offset is its whole meaning."""
