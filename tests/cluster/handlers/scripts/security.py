"""Lists of access and delegation tokens, asked of a node without an authorizer and without authentication."""

from __future__ import annotations

from cluster.handlers.scripts.running import Asked, script
from cluster.handlers.talk import Talk
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from strandline.protocol.messages.tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)


@script(ApiKey.DESCRIBE_ACLS, Asked.BOTH)
def access_described(talk: Talk) -> None:
    anything = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    talk.ask("all", anything)
    anything.resource_type_filter, anything.resource_name_filter = 2, "t"
    talk.ask("of one topic", anything)


@script(ApiKey.CREATE_ACLS, Asked.BOTH)
def access_granted(talk: Talk) -> None:
    one = AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3)
    talk.ask("to nobody", CreateAclsRequest())
    talk.ask("to one and another", CreateAclsRequest(creations=[one, one]))


@script(ApiKey.DELETE_ACLS, Asked.BOTH)
def access_revoked(talk: Talk) -> None:
    one = DeleteAclsFilter(resource_type_filter=2, resource_name_filter="t", operation=1, permission_type=1)
    talk.ask("from nobody", DeleteAclsRequest())
    talk.ask("from one and another", DeleteAclsRequest(filters=[one, one]))


@script(ApiKey.CREATE_DELEGATION_TOKEN, Asked.BOTH)
def tokens_made(talk: Talk) -> None:
    renewer = CreatableRenewers(principal_type="User", principal_name="a")
    talk.ask("for oneself", CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=1000))
    talk.ask("for ever", CreateDelegationTokenRequest(max_lifetime_ms=-1))


@script(ApiKey.RENEW_DELEGATION_TOKEN, Asked.BOTH)
def tokens_renewed(talk: Talk) -> None:
    talk.ask("one", RenewDelegationTokenRequest(hmac=b"hmac", renew_period_ms=1000))


@script(ApiKey.EXPIRE_DELEGATION_TOKEN, Asked.BOTH)
def tokens_ended(talk: Talk) -> None:
    talk.ask("one", ExpireDelegationTokenRequest(hmac=b"hmac", expiry_time_period_ms=-1))


@script(ApiKey.DESCRIBE_DELEGATION_TOKEN, Asked.BOTH)
def tokens_described(talk: Talk) -> None:
    differs = "a controller of Kafka's advertises this and fails in its own code" if talk.controller else None
    owner = DescribeDelegationTokenOwner(principal_type="User", principal_name="a")
    talk.ask("all", DescribeDelegationTokenRequest(owners=None), differs=differs)
    talk.ask("of nobody", DescribeDelegationTokenRequest(owners=[]), differs=differs)
    talk.ask("of one", DescribeDelegationTokenRequest(owners=[owner]), differs=differs)
