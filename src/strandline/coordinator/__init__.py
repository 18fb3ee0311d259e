"""Engine 4: group and transaction coordinators.

A *shard* is one partition of an internal topic (`__consumer_offsets`, `__transaction_state`) on the broker that leads
it. Its machine holds the state that the records of that partition add up to and decides on requests; `shard.py` is the
one shell for every machine: decide → append → replay → respond when committed.

    partitioning     which partition coordinates a group or a transactional id
    records          records of the internal topics: messages in, bytes out, and back
    decision         what a machine returns: a response, records, parked requests that can be answered
    timers           deadlines of a machine, as data
    machine          what a shard asks of its machine
    log_port         what a shard asks of its partition
    append_errors    what clients are answered when an append failed
    loading          the partition replayed into the machine
    uncommitted      a decision whose records are not committed yet
    shard            batched appends, commit, failure, timers
    shards           the shards of one internal topic on this broker: started and stopped with partition leadership
"""
