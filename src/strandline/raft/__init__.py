"""Engine 1: the metadata quorum (Kafka's KRaft). Three packages, each of which imports only those before it. Read the
first in this order, beside the transcripts in tests/unit/raft/scenarios.

`machine/`, without IO: inputs in, effects out.

    values           values that the packages share
    states           the states of a replica within an epoch, and the transitions between them
    majorities       the arithmetic of majorities
    raft_state       one replica: its identity, its persistent state, its role
    observed_leader  the leader that messages name               timeouts        of elections, fetches, check quorum
    election         pre-vote and vote
    leader           a leader's epoch: its begin and its end
    replication      Fetch, both sides; the high watermark
    snapshot         FetchSnapshot, both sides
    membership       adding, removing and updating voters        voters          the voter set, and its history
    describe_quorum  DescribeQuorum
    messages         building and reading of messages            in_flight       requests without a response yet
    replica          all of it behind one interface              effects, log_port, settings

`disk/`, blocking.

    quorum_state     epoch and vote, in a file                   committed_offset    how far the log is committed
    batches          records as bytes                            snapshots       snapshot files
    storage          the log, its snapshots, its quorum-state
    opening          from a directory to a log that is intact    recovery        from that log to the image

`shell/`, on the event loop: it decides nothing.

    driver           one input at a time, its effects in order   input_queue     the inputs that wait
    inbound_requests     from other nodes, with their responses      outbound_requests   to other nodes
    appends          the records of the controller, while this node leads
    stored_log       the machine's log on disk: append, sync, truncate
    replay           committed records into the image, notifications
    snapshot_generator   snapshots of the image                  metrics         under Kafka's names
"""
