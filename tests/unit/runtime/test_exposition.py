from __future__ import annotations

from strandline.runtime.exposition import parse_exposition, render_exposition, sample_name
from strandline.runtime.metrics import Metrics


def test_names_are_those_of_kafkas_exporters() -> None:
    assert sample_name("kafka.server:type=ReplicaManager,name=LeaderCount") == "kafka_server_replicamanager_leadercount"
    produce = "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce"
    assert sample_name(produce) == 'kafka_network_requestmetrics_totaltimems{request="Produce"}'
    tail = 'kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"}'
    assert sample_name(produce + ",attribute=99thPercentile") == tail
    assert sample_name(produce + ",attribute=Max") == 'kafka_network_requestmetrics_totaltimems_max{request="Produce"}'
    assert sample_name("kafka.server:type=raft-metrics,name=commit-latency-avg") == (
        "kafka_server_raft_metrics_commit_latency_avg"
    )
    assert sample_name('a:name=b,said="so"') == 'a_b{said="\\"so\\""}'


def test_rendered_metrics_are_parsed_again() -> None:
    metrics = Metrics()
    metrics.counter("kafka.x:type=T,name=Many").add(12_345_678_901)
    metrics.gauge("kafka.x:type=T,name=Part", lambda: 0.125)
    metrics.gauge("kafka.x:type=T,name=Truth", lambda: True)
    metrics.window("kafka.x:type=T,name=Time").record(9, 0)
    text = render_exposition(metrics.snapshot(0))
    assert "kafka_x_t_many 12345678901\n" in text
    assert parse_exposition("# a remark\n" + text) == {
        "kafka_x_t_many": 12_345_678_901,
        "kafka_x_t_part": 0.125,
        "kafka_x_t_truth": 1,
        "kafka_x_t_time_count": 1,
        "kafka_x_t_time_max": 9,
        "kafka_x_t_time_mean": 9,
        'kafka_x_t_time{quantile="0.5"}': 9,
        'kafka_x_t_time{quantile="0.99"}': 9,
    }


def test_samples_of_one_name_are_adjacent() -> None:
    metrics = Metrics()
    for api in ("Produce", "Fetch"):
        metrics.window("n:name=T", request=api).record(1, 0)
    names = [line.partition("{")[0] for line in render_exposition(metrics.snapshot(0)).splitlines()]
    assert names == sorted(names)
