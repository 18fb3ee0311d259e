"""FindCoordinator."""

from __future__ import annotations

from cluster.handlers.script_run import ScriptRun
from cluster.handlers.script_runner import script
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.coordinators import FindCoordinatorRequest


@script(ApiKey.FIND_COORDINATOR)
def coordinators(run: ScriptRun) -> None:
    def of(kind: int, *keys: str) -> FindCoordinatorRequest:
        request = FindCoordinatorRequest()
        if run.version >= 1:
            request.key_type = kind
        if run.version >= 4:
            request.coordinator_keys = list(keys)
        else:
            request.key = keys[0]
        return request

    for kind, name in enumerate(("__consumer_offsets", "__transaction_state")):
        run.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"]))
        run.wait_for_leaders(name, 1)
    run.record("of a group", of(0, "g"))
    run.record("of a group without a name", of(0, ""))
    if run.version >= 1:
        run.record("of a transaction", of(1, "t"))
        run.record("of a transaction without a name", of(1, ""))
        run.record("of an unknown key type", of(7, "x"))
        run.record("of a share partition", of(2, "group:AAAAAAAAAAAAAAAAAAAAAA:0"))
        run.record("of a share partition with an invalid key", of(2, "x"))
    if run.version >= 4:
        run.record("of two groups", of(0, "g", "h"))
        run.record("without keys", of(0))
