"""Engine 3: the partition replicas of a broker.

Machines: `leader` (high watermark, ISR), `follower` (what to fetch, where to truncate), `fetch_sessions` (the leader's
side of KIP-227). Shells: `table` and `partition` (what handlers call), `fetcher` (one per leader), `broker_replication`
(starts fetchers, opens logs, checks lag), `isr` (proposals to the controller), `flusher`. Background work on logs:
`hosted_logs` (opening and deletion), `maintenance`, `compaction`.
"""
