"""I-9: a broker that restarts after an unclean shutdown is removed from every ELR (KIP-966).

After a clean shutdown a broker registers with its previous epoch. With another one, or none, it may have lost records:
from its registration on it is in no ELR, whether or not records were lost.
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
    """Ignores a broker in the process of the controller, whose registration is not on the network."""

    def __init__(self, cluster: Cluster, model: MetadataModel) -> None:
        self._model = model
        self._claims: dict[Uuid, int] = {}
        """Incarnation id → the previous broker epoch in its registration request."""
        self._epochs: dict[int, tuple[int, Uuid]] = {}
        cluster.metadata.subscribe(self._on_batch)

    def request_written(self, observed: ObservedRequest) -> None:
        if isinstance(observed.message, BrokerRegistrationRequest):
            self._claims[observed.message.incarnation_id] = observed.message.previous_broker_epoch

    def _on_batch(self, batch: MetadataBatch) -> None:
        for record in batch.records:
            if isinstance(record, kinds.RegisterBrokerRecord):
                self._registered(record)
                self._epochs[record.broker_id] = (record.broker_epoch, record.incarnation_id)

    def _registered(self, record: kinds.RegisterBrokerRecord) -> None:
        before, claim = self._epochs.get(record.broker_id), self._claims.get(record.incarnation_id)
        if before is None or claim is None or claim == before[0] or before[1] == record.incarnation_id:
            return
        for (topic_id, index), assignment in self._model.partitions.items():
            if record.broker_id in assignment.elr:
                why = f"broker {record.broker_id} registers with previous epoch {claim}, which was {before[0]}"
                raise Violation("I-9", f"{why}; it is still in the ELR of {self._model.topics[topic_id]}-{index}")
