"""DescribeAcls (29): SECURITY_DISABLED, since there is no authorizer. The controller returns the same for CreateAcls
and DeleteAcls."""

from __future__ import annotations

from strandline.handlers.context import Call, NodeContext
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.acls import DescribeAclsRequest, DescribeAclsResponse


async def handle_describe_acls(node: NodeContext, call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    raise KafkaError(ErrorCode.SECURITY_DISABLED, "no authorizer is configured")
