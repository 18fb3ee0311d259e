"""Who leads a partition: the state a new one starts with, and what becomes of one when its replicas come and go.

`new_partition` and `change` are pure: they look at one partition and say which record, if any, it needs. Duties that
touch many (a broker fenced, unfenced, shutting down, unregistered) are generators over all partitions, in
`controller.elections`; changes of an ISR and reassignments ask `change` the same questions.

The rules (KIP-841, KIP-966):

- a replica is *acceptable* as leader when its broker is active and its directory is online;
- the leader is the current one if it is acceptable and in the target ISR, else the first acceptable replica, in the
  order of assignment, that is in the target ISR or, when that is empty, among the eligible leader replicas (ELR);
- failing all, the last known leader (ELR on), an acceptable replica outside of both (unclean, if the topic allows it),
  or nobody;
- with ELR off the ISR never becomes empty: its last member stays, without a leader;
- with ELR on, those who leave an ISR that falls below min.insync.replicas become eligible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from strandline.metadata.topics import LEADER_UNCHANGED, RECOVERY_STATE_UNCHANGED
from strandline.metadata.values import NO_LEADER, RECOVERING, BrokerInfo, PartitionInfo
from strandline.model.ids import DIRECTORY_LOST, DIRECTORY_UNASSIGNED, Uuid
from strandline.protocol.messages.metadata_records import PartitionChangeRecord

Acceptable = Callable[[int, Uuid], bool]
"""Whether a broker may lead the replica that it keeps in a directory."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the cluster and the topic say about elections."""

    min_insync_replicas: int = 1
    elr_enabled: bool = False
    unclean: bool = False


@dataclass(frozen=True, slots=True)
class _Elected:
    leader: int
    unclean: bool = False


def new_partition(replicas: Sequence[int], brokers: Callable[[int], BrokerInfo | None]) -> PartitionInfo | None:
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
        directories=tuple(_first_directory(brokers(replica)) for replica in replicas),
    )


def _first_directory(broker: BrokerInfo | None) -> Uuid:
    """A broker with one directory has no choice; one with several tells us later where it put the replica."""
    if broker is not None and len(broker.directories) == 1:
        return broker.directories[0]
    return DIRECTORY_UNASSIGNED


def accepts(broker: BrokerInfo | None, directory: Uuid) -> bool:
    if broker is None or not broker.active or directory == DIRECTORY_LOST:
        return False
    # Ids up to 99 are states, not directories; a broker that names no directories is from before they had ids.
    return int.from_bytes(directory, "big") < 100 or not broker.directories or directory in broker.directories


def change(
    partition: PartitionInfo,
    topic_id: Uuid,
    index: int,
    acceptable: Acceptable,
    rules: Rules,
    *,
    target_isr: Iterable[int] | None = None,
    unclean_shutdown: Iterable[int] = (),
) -> PartitionChangeRecord | None:
    """The record that brings the partition into its best state given this ISR; None when it is in it already."""
    isr = tuple(partition.isr if target_isr is None else target_isr)
    lost = tuple(unclean_shutdown)
    elr = _target_elr(partition, isr, lost, rules)
    elected = _elect(partition, isr, elr, acceptable, rules)
    record = PartitionChangeRecord(topic_id=topic_id, partition_id=index)
    if elected.leader != partition.leader:
        record.leader = elected.leader
    if elected.leader != NO_LEADER and elected.leader not in isr:
        isr = (elected.leader,)
        elr = () if elected.unclean else _target_elr(partition, isr, lost, rules)
        if elected.unclean and partition.leader_recovery_state != RECOVERING:
            record.leader_recovery_state = RECOVERING
    if isr != partition.isr and (isr or rules.elr_enabled):
        record.isr = list(isr)
    if elr != partition.elr:
        record.eligible_leader_replicas = list(elr)
    if rules.elr_enabled:
        _remember_last_leader(record, partition)
    return None if _says_nothing(record) else record


def _target_elr(
    partition: PartitionInfo, isr: Sequence[int], unclean_shutdown: Sequence[int], rules: Rules
) -> tuple[int, ...]:
    if not rules.elr_enabled:
        return partition.elr
    if len(isr) >= min(rules.min_insync_replicas, len(partition.replicas)):
        return ()
    eligible = dict.fromkeys((*partition.elr, *partition.isr))
    return tuple(replica for replica in eligible if replica not in isr and replica not in unclean_shutdown)


def _elect(
    partition: PartitionInfo, isr: Sequence[int], elr: Sequence[int], acceptable: Acceptable, rules: Rules
) -> _Elected:
    directories = dict(zip(partition.replicas, partition.directories, strict=False))

    def can_lead(replica: int) -> bool:
        return acceptable(replica, directories.get(replica, DIRECTORY_UNASSIGNED))

    clean = isr or (elr if rules.elr_enabled else ())
    if partition.leader in clean and can_lead(partition.leader):
        return _Elected(partition.leader)
    for replica in partition.replicas:
        if replica in clean and can_lead(replica):
            return _Elected(replica)
    last_known = partition.last_known_elr
    if rules.elr_enabled and not clean and len(last_known) == 1 and can_lead(last_known[0]):
        return _Elected(last_known[0], unclean=True)
    if rules.unclean:
        for replica in partition.replicas:
            if can_lead(replica):
                return _Elected(replica, unclean=True)
    return _Elected(NO_LEADER)


def _remember_last_leader(record: PartitionChangeRecord, partition: PartitionInfo) -> None:
    """Who led last is kept for as long as nobody leads: it is the best bet when no clean choice comes back."""
    if record.isr == [] and partition.leader != NO_LEADER and partition.last_known_elr != (partition.leader,):
        record.last_known_elr = [partition.leader]
        return
    leader = partition.leader if record.leader == LEADER_UNCHANGED else record.leader
    if leader != NO_LEADER and partition.last_known_elr:
        record.last_known_elr = []


def _says_nothing(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == LEADER_UNCHANGED
        and record.leader_recovery_state == RECOVERY_STATE_UNCHANGED
        and record.isr is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
        and record.replicas is None
        and record.directories is None
    )
