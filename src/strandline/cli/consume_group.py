"""`strandline consume -g GROUP`: reads as a member of a group and commits what was printed."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from strandline.cli.consume import POLL_MS, FetchErrorReporter
from strandline.cli.partition_arguments import describe_topic
from strandline.cli.record_printer import Printer

if TYPE_CHECKING:
    from strandline.client.client import Client
    from strandline.client.consumer import GroupConsumer
    from strandline.client.core.fetched_records import FetchedPartition

COMMIT_INTERVAL_MS = 1_000


class GroupRun:
    def __init__(self, arguments: argparse.Namespace, offset_reset: str, printer: Printer) -> None:
        self._arguments = arguments
        self._offset_reset = offset_reset
        self._printer = printer
        self._remaining: int | None = arguments.num

    async def run(self, client: Client) -> None:
        from strandline.client.settings import FetcherSettings, GroupSettings

        await describe_topic(client, self._arguments.topic)
        settings = GroupSettings(offset_reset=self._offset_reset, auto_commit_interval_ms=COMMIT_INTERVAL_MS)
        fetching = FetcherSettings(
            read_committed=self._arguments.read_committed,
            keep_control_batches=self._arguments.print_control_records,
            out_of_range=self._offset_reset,
        )
        async with client.consumer(self._arguments.group, [self._arguments.topic], settings, fetching) as consumer:
            try:
                await self._read(consumer)
            except asyncio.CancelledError:
                # Ctrl-C: everything that a poll has returned is printed.
                await consumer.commit()
                raise

    async def _read(self, consumer: GroupConsumer) -> None:
        last_error = FetchErrorReporter()
        while self._remaining != 0:
            for fetched in await consumer.poll(POLL_MS):
                self._show(consumer, fetched)
            self._printer.flush()
            last_error.report(consumer.last_error)

    def _show(self, consumer: GroupConsumer, fetched: FetchedPartition) -> None:
        """After -n records the position goes back, so that only printed records are committed."""
        for batch in fetched.batches:
            for record in batch.records:
                if self._remaining == 0:
                    consumer.seek(fetched.partition, record.offset)
                    return
                self._printer.show(fetched, batch, record)
                if self._remaining is not None:
                    self._remaining -= 1
