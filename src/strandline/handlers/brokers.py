"""BrokerHeartbeat (63) on the controller listener. The other requests of brokers go to the controller unchanged."""

from __future__ import annotations

from strandline.handlers.context import Call, ControllerContext
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.brokers import BrokerHeartbeatRequest, BrokerHeartbeatResponse


async def handle_broker_heartbeat(
    controller: ControllerContext, call: Call, request: BrokerHeartbeatRequest
) -> BrokerHeartbeatResponse:
    """Besides, the controller is notified when the connection of the heartbeats is lost: it then probes the broker."""

    def lost() -> None:
        controller.broker_connection_lost(request.broker_id, request.broker_epoch)

    call.park()
    response = await controller.methods[ApiKey.BROKER_HEARTBEAT](request, call.version)
    assert isinstance(response, BrokerHeartbeatResponse)
    # After an accepted heartbeat only: a rejected one says nothing about the broker of that id.
    call.on_connection_lost("heartbeats", lost)
    return response
