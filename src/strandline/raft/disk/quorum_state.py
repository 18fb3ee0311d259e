"""The persistent state of a replica of the quorum: its epoch, its vote, the leader it follows (`quorum-state`).

One JSON object, as Kafka writes it: version 0 while voters are configured, version 1 once they are in the log. It is
synced before any message that depends on it is sent: a restarted replica can neither vote twice nor lead an epoch
again.

A second file, `quorum-begun`, is written beside the metadata directory after the first quorum-state inside it. If it
exists and quorum-state does not, the directory was lost: as a voter this replica might elect a leader that lacks
records it once acknowledged. Kafka ignores the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from strandline.model.errors import NodeFault
from strandline.model.ids import ZERO_UUID, Uuid
from strandline.raft.machine.values import LAST_EPOCH, QuorumState
from strandline.runtime.disk import Disk, write_atomically

QUORUM_STATE: Final = "quorum-state"
_QUORUM_BEGUN: Final = "quorum-begun"
LOST_STATE_ADVICE: Final = (
    "Restore the metadata directory, or what is missing in it, from a backup or from a copy. Or, if other voters run "
    "and have everything that it had, restart this node without a vote: move its data directories away, then "
    "`strandline up --replace ID` and `strandline quorum remove ID` (and `quorum add ID` to let it vote again)"
)


def read_quorum_state(disk: Disk, directory: str) -> QuorumState:
    """The empty state when there is no file. A file that cannot be read stops the node: a vote must not be lost."""
    path = f"{directory}/{QUORUM_STATE}"
    if not disk.exists(path):
        return QuorumState()
    try:
        data = json.loads(disk.read(path))
        version = data["data_version"]
        if version not in (0, 1):
            raise NodeFault(f"{path} has data_version {version}, which this release does not support")
        voted_directory = Uuid.parse(data["votedDirectoryId"]) if version == 1 else ZERO_UUID
        epoch = _int_field(data, "leaderEpoch")
        if not 0 <= epoch <= LAST_EPOCH:
            raise ValueError(f"leaderEpoch is {epoch}, which no quorum has reached")
        return QuorumState(epoch, _int_field(data, "leaderId"), _int_field(data, "votedId"), voted_directory)
    except (ValueError, KeyError, TypeError) as error:
        raise NodeFault(
            f"{path} cannot be read ({_damage(error)}): this replica no longer knows how it voted. {LOST_STATE_ADVICE}"
        ) from error


def write_quorum_state(
    disk: Disk, directory: str, state: QuorumState, *, kraft_version: int, voters: Sequence[int]
) -> None:
    """Writes and syncs quorum-state, file and directory. `voters` is only written while they are configured."""
    data: dict[str, Any]
    if kraft_version == 0:
        data = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in voters],
            "data_version": 0,
        }
    else:
        data = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": str(state.voted_directory_id),
            "data_version": 1,
        }
    write_atomically(disk, f"{directory}/{QUORUM_STATE}", json.dumps(data, separators=(",", ":")).encode())


def had_quorum_state(disk: Disk, metadata_directory: str) -> bool:
    """Blocking. Whether a quorum-state was written in this directory before."""
    return disk.exists(f"{metadata_directory}/{_QUORUM_BEGUN}")


def mark_quorum_begun(disk: Disk, metadata_directory: str) -> None:
    """Blocking. Records that a quorum-state was written; synced when it returns."""
    if not had_quorum_state(disk, metadata_directory):
        path = f"{metadata_directory}/{_QUORUM_BEGUN}"
        write_atomically(disk, path, b"a replica of the metadata quorum has run here\n")


def _damage(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]}"
    if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError, TypeError)):
        return "it is empty or not a JSON object"
    return str(error)


def _int_field(data: dict[str, Any], name: str) -> int:
    value = data[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, not an integer")
    return value
