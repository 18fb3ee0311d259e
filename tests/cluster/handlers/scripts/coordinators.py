"""FindCoordinator."""

from __future__ import annotations

from cluster.handlers.scripts.running import script
from cluster.handlers.talk import Talk
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.coordinators import FindCoordinatorRequest

NONE_YET = "coordinators of groups and transactions are not served yet"


@script(ApiKey.FIND_COORDINATOR)
def coordinators(talk: Talk) -> None:
    def of(kind: int, *keys: str) -> FindCoordinatorRequest:
        request = FindCoordinatorRequest()
        if talk.version >= 1:
            request.key_type = kind
        if talk.version >= 4:
            request.coordinator_keys = list(keys)
        else:
            request.key = keys[0]
        return request

    for kind, name in enumerate(("__consumer_offsets", "__transaction_state")):
        talk.quietly(FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"]))
        if talk.target.is_kafka:
            talk.wait_for(name, 1)
    talk.ask("of a group", of(0, "g"), differs=NONE_YET)
    talk.ask("of a group without a name", of(0, ""), differs=NONE_YET)
    if talk.version >= 1:
        talk.ask("of a transaction", of(1, "t"), differs=NONE_YET)
        talk.ask("of a transaction without a name", of(1, ""), differs=NONE_YET)
        talk.ask("of a kind that nobody knows", of(7, "x"))
        talk.ask("of a share partition", of(2, "group:AAAAAAAAAAAAAAAAAAAAAA:0"))
        talk.ask("of a share partition with a key that is none", of(2, "x"))
    if talk.version >= 4:
        talk.ask("of two groups", of(0, "g", "h"), differs=NONE_YET)
        talk.ask("of nobody", of(0))
