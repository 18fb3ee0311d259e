"""The principal of a forwarded request, inside an Envelope."""

from __future__ import annotations

from strandline.protocol.types import Message, boolean, string


class DefaultPrincipalData(Message, versions=(0, 0), flexible=0):
    """Preceded by a two-byte version inside the Envelope."""

    type: string = ""
    name: string = ""
    token_authenticated: boolean = False
