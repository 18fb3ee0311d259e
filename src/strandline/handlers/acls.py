"""DescribeAcls (29). Without an authorizer there is nothing that entries would say; creating and deleting them goes to
the controller, which answers the same."""

from __future__ import annotations

from strandline.handlers.context import Call, NodeContext
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.acls import DescribeAclsRequest, DescribeAclsResponse


async def handle_describe_acls(node: NodeContext, call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    raise KafkaError(ErrorCode.SECURITY_DISABLED, "no authorizer is configured")
