"""ACLs and delegation tokens on a node without an authorizer and without authentication."""

from __future__ import annotations

from cluster.handlers.script_run import CONTROLLER_THROWS, ScriptRun
from cluster.handlers.script_runner import Listeners, script
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


@script(ApiKey.DESCRIBE_ACLS, Listeners.BOTH)
def acls_described(run: ScriptRun) -> None:
    anything = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    run.record("all", anything)
    anything.resource_type_filter, anything.resource_name_filter = 2, "t"
    run.record("of one topic", anything)


@script(ApiKey.CREATE_ACLS, Listeners.BOTH)
def acls_created(run: ScriptRun) -> None:
    one = AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3)
    run.record("no ACLs", CreateAclsRequest())
    run.record("two ACLs", CreateAclsRequest(creations=[one, one]))


@script(ApiKey.DELETE_ACLS, Listeners.BOTH)
def acls_deleted(run: ScriptRun) -> None:
    one = DeleteAclsFilter(resource_type_filter=2, resource_name_filter="t", operation=1, permission_type=1)
    run.record("no filters", DeleteAclsRequest())
    run.record("two filters", DeleteAclsRequest(filters=[one, one]))


@script(ApiKey.CREATE_DELEGATION_TOKEN, Listeners.BOTH)
def tokens_created(run: ScriptRun) -> None:
    renewer = CreatableRenewers(principal_type="User", principal_name="a")
    run.record("for the requester", CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=1000))
    run.record("without a maximum lifetime", CreateDelegationTokenRequest(max_lifetime_ms=-1))


@script(ApiKey.RENEW_DELEGATION_TOKEN, Listeners.BOTH)
def tokens_renewed(run: ScriptRun) -> None:
    run.record("one", RenewDelegationTokenRequest(hmac=b"hmac", renew_period_ms=1000))


@script(ApiKey.EXPIRE_DELEGATION_TOKEN, Listeners.BOTH)
def tokens_expired(run: ScriptRun) -> None:
    run.record("one", ExpireDelegationTokenRequest(hmac=b"hmac", expiry_time_period_ms=-1))


@script(ApiKey.DESCRIBE_DELEGATION_TOKEN, Listeners.BOTH)
def tokens_described(run: ScriptRun) -> None:
    differs = CONTROLLER_THROWS if run.controller else None
    owner = DescribeDelegationTokenOwner(principal_type="User", principal_name="a")
    run.record("all", DescribeDelegationTokenRequest(owners=None), differs=differs)
    run.record("of no owner", DescribeDelegationTokenRequest(owners=[]), differs=differs)
    run.record("of one", DescribeDelegationTokenRequest(owners=[owner]), differs=differs)
