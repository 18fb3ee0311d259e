"""ApiVersions: what each listener advertises, and how a client that is too new finds out."""

from __future__ import annotations

from cluster.handlers.scripts.running import Asked, script
from cluster.handlers.talk import Closed, Talk, Wire
from strandline.protocol.apis import ApiKey
from strandline.protocol.codec import decode
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

# Kafka serves more than we do yet; those that both serve must have the same versions. Raft comes with its issue.
KEYS = {
    False: {0, 1, 2, 3, 10, 18, 19, 20, 21, 22, 23, 32, 33, 35, 37, 44, 55, 57, 60, 61, 64, 74, 75},
    True: {18, 19, 20, 32, 33, 37, 44, 55, 57, 60, 62, 63, 64, 67, 70},
}


@script(ApiKey.API_VERSIONS, Asked.BOTH)
def versions(talk: Talk) -> None:
    def comparable(answer: ApiVersionsResponse) -> None:
        keys = KEYS[talk.controller]
        answer.api_keys = sorted(
            (each for each in answer.api_keys if each.api_key in keys), key=lambda each: each.api_key
        )
        answer.finalized_features_epoch = min(answer.finalized_features_epoch, 0)

    def ask(label: str, name: str, version: str) -> None:
        request = ApiVersionsRequest()
        if talk.version >= 3:
            request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        features = {"supported_features", "finalized_features"}
        talk.ask(label, request, change=comparable, unordered=features)

    ask("a client with a name", "script", "1.0.0-rc1")
    ask("a client with an empty name", "", "1.0")
    ask("a client with an empty version", "script", "")
    ask("a name with a blank", "my script", "1.0")
    ask("a name that ends with a dot", "script.", "1.0")
    ask("a name in Greek", "αβγ", "1.0")
    ask("a version of one letter", "s", "1")


@script(ApiKey.API_VERSIONS)
def a_version_to_come(talk: Talk) -> None:
    """Answered in version 0, whatever was asked: so a newer client finds out what it may ask."""
    if talk.version != 0:
        return
    for version in (5, 99, 32767, -1):
        wire = Wire(talk.target.host, talk.target.port)
        try:
            header = b"\x00\x12" + version.to_bytes(2, "big", signed=True) + b"\0\0\0\1\xff\xff" + b"\0" * 4
            wire.socket.sendall(len(header).to_bytes(4, "big") + header)
            frame = wire.frame()
        except Closed:
            talk.note(f"version {version}", "closes the connection")
            continue
        finally:
            wire.close()
        answer, end = decode(ApiVersionsResponse, 0, frame, 4)
        keys = [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys]
        talk.note(f"version {version}", f"error {answer.error_code}, {keys}, {len(frame) - end} more bytes")
