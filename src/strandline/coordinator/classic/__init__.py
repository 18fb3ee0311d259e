"""Classic groups: members agree on a protocol, one of them assigns partitions, the coordinator carries messages.

group        state of one group and the table of legal moves; its record
rebalance    preparing and completing the join phase
join         JoinGroup
sync         SyncGroup
membership   Heartbeat, LeaveGroup, members that time out
"""
