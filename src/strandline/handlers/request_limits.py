"""How many topics, partitions or resources one request may name to the active controller.

The controller makes one decision after the other for the whole cluster, so a request that names more than one decision
can hold is rejected before it is queued there: by the broker that would forward it, and by the controller listener.
The count is derived from the declaration of the request: the elements of its lists, and where a list is of topics with
partitions, their partitions.
"""

from __future__ import annotations

from functools import cache

from strandline.controller.decisions import MAX_RECORDS_PER_DECISION
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.types import Message, Primitive, layout


def check_request_limit(request: Message) -> None:
    """Raises POLICY_VIOLATION for a request that names too much for one decision."""
    count = count_named(request)
    if count > MAX_RECORDS_PER_DECISION:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"the request names {count} topics, partitions or resources; split it, one request may name "
            f"{MAX_RECORDS_PER_DECISION}",
        )


def count_named(request: Message) -> int:
    """A topic without partitions counts as one. A null list stands for everything, and names nothing."""
    count = 0
    for name, partitions in _named_lists(type(request)):
        elements = getattr(request, name) or ()
        if partitions is None:
            count += len(elements)
        else:
            count += sum(max(1, len(getattr(element, partitions))) for element in elements)
    return count


@cache
def _named_lists(request: type[Message]) -> tuple[tuple[str, str | None], ...]:
    """The lists of a request, each with the list of partitions that its elements have, if any."""
    found = []
    for field in layout(request):
        if field.is_list:
            inner = () if isinstance(field.kind, Primitive) else layout(field.kind)
            partitions = (each.name for each in inner if each.is_list and each.name.startswith("partition"))
            found.append((field.name, next(partitions, None)))
    return tuple(found)
