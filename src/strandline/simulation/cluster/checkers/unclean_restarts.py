"""I-9, of those who come back: eligible stays who has kept what it vouched for, and nobody else (KIP-966).

A broker registers with the epoch that it had before if it has lost nothing. With any other, or with none, it may have
lost records: from its registration on it is eligible nowhere, whether or not it lost any this time.
"""

from __future__ import annotations

from strandline.model.ids import Uuid
from strandline.protocol.messages import metadata_records as kinds
from strandline.protocol.messages.brokers import BrokerRegistrationRequest
from strandline.raft.disk.batches import MetadataBatch
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Cluster
from strandline.simulation.cluster.metadata_model import MetadataModel
from strandline.simulation.cluster.request_tap import ObservedRequest
from strandline.simulation.cluster.violation import Violation


class UncleanRestartsLoseEligibility(Checker):
    """Not judged: a broker in the process of the controller, whose registration is not heard here."""

    def __init__(self, cluster: Cluster, scribe: MetadataModel) -> None:
        self._scribe = scribe
        self._claims: dict[Uuid, int] = {}
        """By incarnation: the epoch that it says it had before."""
        self._epochs: dict[int, tuple[int, Uuid]] = {}
        cluster.ledger.tell(self._committed)

    def asked(self, asked: ObservedRequest) -> None:
        if isinstance(asked.message, BrokerRegistrationRequest):
            self._claims[asked.message.incarnation_id] = asked.message.previous_broker_epoch

    def _committed(self, batch: MetadataBatch) -> None:
        for record in batch.records:
            if isinstance(record, kinds.RegisterBrokerRecord):
                self._registered(record)
                self._epochs[record.broker_id] = (record.broker_epoch, record.incarnation_id)

    def _registered(self, record: kinds.RegisterBrokerRecord) -> None:
        before, claim = self._epochs.get(record.broker_id), self._claims.get(record.incarnation_id)
        if before is None or claim is None or claim == before[0] or before[1] == record.incarnation_id:
            return
        for (topic_id, index), assignment in self._scribe.partitions.items():
            if record.broker_id in assignment.elr:
                why = f"broker {record.broker_id} comes back and says it had epoch {claim}, and it had {before[0]}"
                raise Violation(
                    "I-9", f"{why}: it is eligible for {self._scribe.topics[topic_id]}-{index} all the same"
                )
