"""Subscriptions by regular expression (RE2 syntax), matched on the coordinator, and their resolved topics.

The engine is RE2: matching takes time linear in the name, whatever the expression, so a member cannot hold up the
coordinator. All expressions of a group are matched together, on a timer: when a member brings a new one, when topics
were created or deleted, and every ten minutes; at most once in ten seconds. A resolution with other topics than before
makes the group epoch grow.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum, auto
from typing import Any, Final

import msgspec

from strandline.coordinator.consumer.context import ConsumerContext, RegexSlice
from strandline.coordinator.consumer.group import ConsumerGroup
from strandline.coordinator.consumer.group_records import ResolvedRegex, epoch_record, regex_record, regex_tombstone
from strandline.coordinator.consumer.member import Member
from strandline.coordinator.consumer.metadata_hash import metadata_hash
from strandline.coordinator.consumer.topics import Topics
from strandline.coordinator.decision import Decision, Now, nothing
from strandline.coordinator.records import CoordinatorRecord
from strandline.model.errors import ErrorCode, KafkaError

METADATA_REFRESH_INTERVAL_MS: Final = 3_600_000
_LEAST_REFRESH_INTERVAL_MS: Final = 10_000
_MATCHES_PER_SLICE: Final = 2_000
_LONGEST: Final = 32_767
_MAX_PROGRAM_BYTES: Final = 8 << 20


class RegexChange(Enum):
    NONE = auto()
    UPDATED = auto()
    """To an expression that is resolved later."""
    RESOLVED = auto()
    """To an expression whose topics are known."""


class RegexJob(msgspec.Struct):
    """The expressions of a group that are being matched."""

    group: ConsumerGroup
    steps: Generator[None, None, dict[str, ResolvedRegex]]


def compiled(regex: str) -> Any:
    """Raises INVALID_REGULAR_EXPRESSION."""
    import re2  # a broker without such subscriptions does not load the engine

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_PROGRAM_BYTES
    try:
        if len(regex) > _LONGEST:
            raise re2.error("it is too long")
        return re2.compile(regex, options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {why}.",
        ) from None


def update_regexes(
    context: ConsumerContext,
    jobs: dict[str, RegexJob],
    group: ConsumerGroup,
    old: Member,
    new: Member,
    records: list[CoordinatorRecord],
    now: Now,
) -> RegexChange:
    """Adds a tombstone for an expression that nobody uses any more, and schedules the resolution when one is due."""
    change = RegexChange.NONE
    is_due = False
    if (old.subscribed_regex or "") != (new.subscribed_regex or ""):
        change = RegexChange.UPDATED
        if old.subscribed_regex and group.regex_subscribers(old.subscribed_regex) == 1:
            records.append(regex_tombstone(group.group_id, old.subscribed_regex))
        if new.subscribed_regex and group.regex_subscribers(new.subscribed_regex) == 0:
            compiled(new.subscribed_regex)
            is_due = True
        elif new.subscribed_regex and group.regexes.get(new.subscribed_regex) is not None:
            change = RegexChange.RESOLVED
    if not is_due and not group.subscribed_regexes():
        return change
    last = next(iter(group.regexes.values()), None)
    if group.group_id in jobs or (last and now.wall_ms <= last.timestamp_ms + _LEAST_REFRESH_INTERVAL_MS):
        return change
    wanted = {regex for regex in group.subscribed_regexes() if group.regex_subscribers(regex) > 0}
    if old.subscribed_regex and group.regex_subscribers(old.subscribed_regex) == 1:
        wanted.discard(old.subscribed_regex)
    if new.subscribed_regex:
        wanted.add(new.subscribed_regex)
    if is_due or _is_outdated(context, group, wanted, last, now):
        _start(context, jobs, group, sorted(wanted), now)
    return change


def _is_outdated(
    context: ConsumerContext, group: ConsumerGroup, wanted: set[str], last: ResolvedRegex | None, now: Now
) -> bool:
    interval_ms = context.settings(group.group_id).regex_refresh_interval_ms
    return (
        len(wanted) != len(group.regexes)
        or last is None
        or last.version < context.newest_topic_version
        or now.wall_ms > last.timestamp_ms + interval_ms
    )


def _start(
    context: ConsumerContext, jobs: dict[str, RegexJob], group: ConsumerGroup, wanted: list[str], now: Now
) -> None:
    if wanted:
        jobs[group.group_id] = RegexJob(group, _resolve(context.topics, wanted, now.wall_ms))
        context.timers.schedule(RegexSlice(group.group_id), now.ms)


def _resolve(topics: Topics, wanted: list[str], wall_ms: int) -> Generator[None, None, dict[str, ResolvedRegex]]:
    version, names = topics.version, list(topics.names())
    resolved = {}
    work = 0
    for regex in wanted:
        pattern = compiled(regex)
        found: list[str] = []
        for start in range(0, len(names), _MATCHES_PER_SLICE):
            part = names[start : start + _MATCHES_PER_SLICE]
            found += [name for name in part if pattern.fullmatch(name)]
            work += len(part)
            if work >= _MATCHES_PER_SLICE:
                work = 0
                yield
        resolved[regex] = ResolvedRegex(frozenset(found), version, wall_ms)
    return resolved


def on_regex_slice(
    context: ConsumerContext, jobs: dict[str, RegexJob], group: ConsumerGroup | None, group_id: str, now: Now
) -> Decision[None]:
    job = jobs.get(group_id)
    if group is None or job is None or job.group is not group:
        jobs.pop(group_id, None)
        return nothing()
    try:
        next(job.steps)
    except StopIteration as end:
        del jobs[group_id]
        return _on_resolved(context, group, end.value, now)
    context.timers.schedule(RegexSlice(group_id), now.ms + 1)
    return nothing()


def _on_resolved(
    context: ConsumerContext, group: ConsumerGroup, resolved: dict[str, ResolvedRegex], now: Now
) -> Decision[None]:
    records = []
    has_changed = False
    names = set(group.subscribed_topics())
    for regex, found in resolved.items():
        if group.regex_subscribers(regex) == 0:
            continue
        known = group.regexes.get(regex)
        has_changed |= (frozenset() if known is None else known.topics) != found.topics
        names |= found.topics
        records.append(regex_record(group.group_id, regex, found))
    if has_changed:
        names = set(_topics_after(group, resolved))
    new_hash = metadata_hash(context.topics, names)
    if has_changed or new_hash != group.metadata_hash:
        epoch = group.epoch() + 1
        records.append(epoch_record(group.group_id, epoch, new_hash))
        group.refresh_metadata_at(now.ms + METADATA_REFRESH_INTERVAL_MS, epoch)
    return Decision(None, records)


def _topics_after(group: ConsumerGroup, resolved: dict[str, ResolvedRegex]) -> frozenset[str]:
    names = {topic for member in group.members.values() for topic in member.subscribed_topics}
    for regex in group.subscribed_regexes():
        found = resolved.get(regex) or group.regexes.get(regex)
        if found is not None:
            names |= found.topics
    return frozenset(names)
