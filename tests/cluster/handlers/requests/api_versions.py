"""ApiVersions: what each listener advertises, and the response to a version that it does not support."""

from __future__ import annotations

from cluster.connection import Connection, ConnectionClosed
from cluster.handlers.script_run import ScriptRun
from cluster.handlers.script_runner import Listeners, script
from strandline.protocol.apis import ApiKey
from strandline.protocol.codec import decode
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

# Of the APIs that both serve; Kafka serves more.
KEYS = {
    False: {0, 1, 2, 3, 10, 18, 19, 20, 21, 22, 23, 32, 33, 35, 37, 44, 55, 57, 60, 61, 64, 74, 75},
    True: {18, 19, 20, 32, 33, 37, 44, 55, 57, 60, 62, 63, 64, 67, 70},
}


@script(ApiKey.API_VERSIONS, Listeners.BOTH)
def advertised_versions(run: ScriptRun) -> None:
    def comparable(response: ApiVersionsResponse) -> None:
        keys = KEYS[run.controller]
        response.api_keys = sorted(
            (each for each in response.api_keys if each.api_key in keys), key=lambda each: each.api_key
        )
        response.finalized_features_epoch = min(response.finalized_features_epoch, 0)

    def record(label: str, name: str, version: str) -> None:
        request = ApiVersionsRequest()
        if run.version >= 3:
            request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        features = {"supported_features", "finalized_features"}
        run.record(label, request, change=comparable, unordered=features)

    record("a client with a name", "script", "1.0.0-rc1")
    record("a client with an empty name", "", "1.0")
    record("a client with an empty version", "script", "")
    record("a name with a space", "my script", "1.0")
    record("a name that ends with a dot", "script.", "1.0")
    record("a name in Greek", "αβγ", "1.0")
    record("a version of one letter", "s", "1")


@script(ApiKey.API_VERSIONS)
def unsupported_versions(run: ScriptRun) -> None:
    """The response is in version 0, so that a newer client learns which versions are supported."""
    if run.version != 0:
        return
    for version in (5, 99, 32767, -1):
        wire = Connection(run.node.host, run.node.port)
        try:
            header = b"\x00\x12" + version.to_bytes(2, "big", signed=True) + b"\0\0\0\1\xff\xff" + b"\0" * 4
            wire.socket.sendall(len(header).to_bytes(4, "big") + header)
            frame = wire.frame()
        except ConnectionClosed:
            run.add(f"version {version}", "closes the connection")
            continue
        finally:
            wire.close()
        response, end = decode(ApiVersionsResponse, 0, frame, 4)
        keys = [(each.api_key, each.min_version, each.max_version) for each in response.api_keys]
        run.add(f"version {version}", f"error {response.error_code}, {keys}, {len(frame) - end} more bytes")
