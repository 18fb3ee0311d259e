"""Who leads a partition: the state a new one starts with, and what becomes of one when its replicas come and go.

`new_partition` and `change` are pure: they look at one partition and say which record, if any, it needs. Everybody who
changes partitions asks here: brokers coming and going (`elections`), leaders that report their followers (`isr`), those
who want other leaders (`leaders`) or other replicas (`reassignments`), directories that fail (`directories`).

A change goes through four steps, always in this order:

1. *Replicas.* A reassignment is over as soon as the target ISR, without the replicas to be removed, is not empty and
   holds every replica to be added (and, when more are removed than added, all that remain).
2. *Eligible leaders* (ELR, KIP-966). While fewer than min.insync.replicas are in sync, nothing more is committed, so
   those who leave the ISR stay eligible: they have all that is. Once enough are in sync, nobody else is eligible.
3. *Leader.* Of the target ISR, or of the ELR when that is empty: the current leader if it can lead, else the first in
   order of assignment that can. Failing these, the last known leader (with ELR); failing that, anyone who can lead,
   where the topic allows it. The last two are *unclean*: what they lack is lost, and they are marked as recovering.
4. *Epochs.* Naming a leader, even the same one, raises the leader epoch. It is named when it changes and when a replica
   is dropped, so that the leader forgets that replica (and, up to metadata version 11, when the ISR shrinks).

Invariants: the leader is in the ISR; ISR and ELR are disjoint and assigned; the ELR is empty while enough are in sync.
With ELR off the ISR never becomes empty: its last member stays, without a leader.

Kafka 4.3 decides alike, record for record, except where it would break these: it leaves replicas in the ELR that are no
longer assigned, forgets the ELR of a partition without a leader when the feature is switched off, counts
min.insync.replicas against the replicas of partition 0, and notes -1 as last leader of a partition that has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

import msgspec

from strandline.metadata.record_versions import DIRECTORIES_SINCE, LATEST_METADATA_VERSION
from strandline.metadata.topics_image import LEADER_UNCHANGED, RECOVERY_STATE_UNCHANGED
from strandline.metadata.values import NO_LEADER, RECOVERING, BrokerInfo, PartitionInfo
from strandline.model.ids import Uuid
from strandline.protocol.messages.metadata_records import PartitionChangeRecord

# Brokers of older levels notice that the ISR shrank by the leader epoch only (KAFKA-15021).
_SHRINKING_KEEPS_EPOCH_SINCE: Final = 12


class BrokerLookup(Protocol):
    """What a change needs to know of brokers: see `controller.live_brokers`."""

    def can_lead(self, broker_id: int, directory: Uuid) -> bool:
        """Whether a broker may lead the replica that it keeps in this directory."""
        ...

    def new_directory(self, broker_id: int) -> Uuid:
        """Where a broker will put a new replica."""
        ...


class Election(Enum):
    """How far to go for a leader."""

    ONLINE = auto()
    """The current one, or the first that is eligible."""
    PREFERRED = auto()
    """The first in order of assignment, before the current one."""
    UNCLEAN = auto()
    """As ONLINE, but rather anybody than nobody."""


class ElectionRules(msgspec.Struct, frozen=True):
    """What the cluster and the topic say about elections."""

    min_insync_replicas: int = 1
    elr_enabled: bool = False
    unclean: bool = False
    metadata_version: int = LATEST_METADATA_VERSION


class Target(msgspec.Struct, frozen=True):
    """What a change is to bring about; None: as it is."""

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    directory: tuple[int, Uuid] | None = None
    """(broker, where it keeps its replica)"""
    recovery_state: int | None = None
    unclean_shutdown: tuple[int, ...] = ()
    """Replicas that may have lost what they had: eligible no more."""
    election: Election | None = None
    """None: UNCLEAN where the topic allows it, else ONLINE."""


AS_IT_IS: Final = Target()


class _Assignment(NamedTuple):
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def new_partition(
    replicas: Sequence[int], brokers: Callable[[int], BrokerInfo | None], hosts: BrokerLookup
) -> PartitionInfo | None:
    """None when no replica is active, for then nobody could lead it."""
    isr = tuple(replica for replica in replicas if (broker := brokers(replica)) is not None and broker.active)
    if not isr:
        return None
    return PartitionInfo(
        replicas=tuple(replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(hosts.new_directory(replica) for replica in replicas),
    )


def change(
    partition: PartitionInfo,
    topic_id: Uuid,
    index: int,
    hosts: BrokerLookup,
    rules: ElectionRules,
    target: Target = AS_IT_IS,
) -> PartitionChangeRecord | None:
    """The record that brings the partition into its best state given this target; None when it is in it already."""
    wanted = _completed(_wanted(partition, target))
    elr = _eligible(partition, wanted, target.unclean_shutdown, rules)
    leader, unclean = _elect(partition, wanted, elr, hosts, rules, target.election)
    record = PartitionChangeRecord(topic_id=topic_id, partition_id=index)
    isr = wanted.isr
    if leader != partition.leader:
        record.leader = leader
    if leader != NO_LEADER and leader not in isr:
        isr = (leader,)
        elr = () if unclean or _enough(isr, partition, rules) else tuple(each for each in elr if each != leader)
        if unclean and partition.leader_recovery_state != RECOVERING:
            record.leader_recovery_state = RECOVERING
    if not rules.elr_enabled:
        isr = isr or partition.isr
        elr = () if isr else elr
    if isr != partition.isr:
        record.isr = list(isr)
    if elr != partition.elr:
        record.eligible_leader_replicas = list(elr)
    if record.leader == LEADER_UNCHANGED and _raises_leader_epoch(partition, wanted, record.isr, rules):
        record.leader = partition.leader
    if rules.elr_enabled:
        _remember_last_leader(record, partition)
    _write_assignment(record, partition, wanted, target, hosts, rules)
    if target.recovery_state is not None and target.recovery_state != partition.leader_recovery_state:
        record.leader_recovery_state = target.recovery_state
    return None if _says_nothing(record) else record


def _wanted(partition: PartitionInfo, target: Target) -> _Assignment:
    return _Assignment(
        partition.replicas if target.replicas is None else target.replicas,
        partition.isr if target.isr is None else target.isr,
        partition.adding if target.adding is None else target.adding,
        partition.removing if target.removing is None else target.removing,
    )


def _completed(wanted: _Assignment) -> _Assignment:
    """The assignment that a reassignment led to, if it is at its end."""
    adding, removing = wanted.adding, wanted.removing
    if not adding and not removing:
        return wanted
    isr = tuple(replica for replica in wanted.isr if replica not in removing)
    replicas = tuple(replica for replica in wanted.replicas if replica not in removing)
    if removing and not (isr and replicas):
        return wanted
    awaited = replicas if len(adding) < len(removing) else adding
    if any(replica not in isr for replica in (*adding, *awaited)):
        return wanted
    return _Assignment(replicas, isr, (), ())


def _eligible(
    partition: PartitionInfo, wanted: _Assignment, unclean_shutdown: Sequence[int], rules: ElectionRules
) -> tuple[int, ...]:
    """Who may lead when nobody in sync can. With ELR off, those left over from when it was on."""
    if not rules.elr_enabled:
        return partition.elr
    if _enough(wanted.isr, partition, rules):
        return ()
    eligible = sorted(
        replica
        for replica in {*partition.elr, *partition.isr}
        if replica in wanted.replicas and replica not in wanted.isr and replica not in unclean_shutdown
    )
    # In the order in which they stand, so that nothing is written when nothing changes.
    return partition.elr if sorted(partition.elr) == eligible else tuple(eligible)


def _enough(isr: Sequence[int], partition: PartitionInfo, rules: ElectionRules) -> bool:
    """Whether these suffice to commit; nobody can demand more replicas than there are."""
    return len(isr) >= min(rules.min_insync_replicas, len(partition.replicas))


def _elect(
    partition: PartitionInfo,
    wanted: _Assignment,
    elr: Sequence[int],
    hosts: BrokerLookup,
    rules: ElectionRules,
    election: Election | None,
) -> tuple[int, bool]:
    """The leader, and whether it was chosen uncleanly."""

    def can_lead(replica: int) -> bool:
        directory = partition.directory_of(replica)
        return directory is not None and hosts.can_lead(replica, directory)

    clean = wanted.isr or elr
    if election is Election.PREFERRED and wanted.replicas[0] in clean and can_lead(wanted.replicas[0]):
        return wanted.replicas[0], False
    if partition.leader in clean and can_lead(partition.leader):
        return partition.leader, False
    for replica in wanted.replicas:
        if replica in clean and can_lead(replica):
            return replica, False
    last = partition.last_known_elr
    if rules.elr_enabled and not clean and len(last) == 1 and last[0] in wanted.replicas and can_lead(last[0]):
        return last[0], True
    if election is Election.UNCLEAN or (election is None and rules.unclean):
        for replica in wanted.replicas:
            if can_lead(replica):
                return replica, True
    return NO_LEADER, False


def _raises_leader_epoch(
    partition: PartitionInfo, wanted: _Assignment, isr: Sequence[int] | None, rules: ElectionRules
) -> bool:
    """Though the leader stays."""
    if wanted.replicas != partition.replicas and any(each not in wanted.replicas for each in partition.replicas):
        return True
    if isr is None or rules.metadata_version >= _SHRINKING_KEEPS_EPOCH_SINCE:
        return False
    return any(replica not in isr for replica in partition.isr)


def _remember_last_leader(record: PartitionChangeRecord, partition: PartitionInfo) -> None:
    """Who led last is kept for as long as nobody leads: it is the best bet when no clean choice comes back."""
    if record.leader == NO_LEADER:
        if partition.leader != NO_LEADER and not partition.last_known_elr:
            record.last_known_elr = [partition.leader]
    elif record.leader != LEADER_UNCHANGED and partition.last_known_elr:
        record.last_known_elr = []


def _write_assignment(
    record: PartitionChangeRecord,
    partition: PartitionInfo,
    wanted: _Assignment,
    target: Target,
    hosts: BrokerLookup,
    rules: ElectionRules,
) -> None:
    if wanted.replicas != partition.replicas:
        record.replicas = list(wanted.replicas)
    if wanted.adding != partition.adding:
        record.adding_replicas = list(wanted.adding)
    if wanted.removing != partition.removing:
        record.removing_replicas = list(wanted.removing)
    moved = record.replicas is not None or target.directory is not None
    if moved and rules.metadata_version >= DIRECTORIES_SINCE:
        known = dict(zip(partition.replicas, partition.directories, strict=False))
        if target.directory is not None:
            known[target.directory[0]] = target.directory[1]
        directories = [
            known[replica] if replica in known else hosts.new_directory(replica) for replica in wanted.replicas
        ]
        if tuple(directories) != partition.directories:
            record.directories = directories


def _says_nothing(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == LEADER_UNCHANGED
        and record.leader_recovery_state == RECOVERY_STATE_UNCHANGED
        and record.isr is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
        and record.replicas is None
        and record.adding_replicas is None
        and record.removing_replicas is None
        and record.directories is None
    )
