"""Client metrics (KIP-714): GetTelemetrySubscriptions (71), PushTelemetry (72)."""

from __future__ import annotations

from strandline.model.ids import ZERO_UUID
from strandline.protocol.types import Message, boolean, bytes_, i8, i16, i32, string, uuid


class GetTelemetrySubscriptionsRequest(Message, api_key=71, versions=(0, 0), flexible=0):
    """Requests the metrics to collect; with a zero id, also a client instance id."""

    client_instance_id: uuid = ZERO_UUID


class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions=(0, 0), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    client_instance_id: uuid = ZERO_UUID
    subscription_id: i32 = 0
    accepted_compression_types: list[i8] = []
    push_interval_ms: i32 = 0
    telemetry_max_bytes: i32 = 0
    delta_temporality: boolean = False
    requested_metrics: list[string] = []


class PushTelemetryRequest(Message, api_key=72, versions=(0, 0), flexible=0):
    """Metrics in OTLP form, perhaps compressed."""

    client_instance_id: uuid = ZERO_UUID
    subscription_id: i32 = 0
    terminating: boolean = False
    compression_type: i8 = 0
    metrics: bytes_ = b""


class PushTelemetryResponse(Message, api_key=72, versions=(0, 0), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
