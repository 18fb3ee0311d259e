"""Engine 1: the metadata quorum (Kafka's KRaft). Three rooms, each of which knows only those before it; to learn it,
read the first in this order, beside the transcripts in tests/unit/raft/scenarios.

`machine/`, without IO: inbound_requests in, effects out.

    values           what the rooms hand to one another
    states           the states of a replica within an epoch, and which may follow which
    majorities       the arithmetic of majorities
    raft_state             one replica's place: who it is, what it remembers, which state it is in
    election        standing for election, and voting          timeouts        how long to wait before
    announcements    an epoch begins, an epoch ends              observed_leader         what is learnt in passing
    replication      the leader's side of Fetch                  following       the follower's
    leader          what a leader does beside                   check_quorum    and when it must stop
    snapshot  for those who are too far behind
    membership       changing who votes                          joining         a controller sees to itself
    voters           who votes, and since which offset           describe_quorum     DescribeQuorum
    requests, answers, in_flight                            what is said, and what is under way
    replica          all of it behind one door                   effects, log_port, settings   the door's hinges

`disk/`, blocking.

    quorum_state     epoch and vote, in a file                   storage         the log, its snapshots, that file
    batches          records as bytes                            snapshots       snapshot files
    opening, examination, recovery                               from a directory to a log that may be trusted
    committed_offset        how far it is known to be committed_offset         mark            that there was all this

`shell/`, on the event loop: it decides nothing.

    driver           one input at a time, its effects in order   input_queue, inbound_requests   source of inputs
    outbound_requests, replies                                   requests out, answers back
    flusher          syncs in the background                     replay          committed_offset records into the image
    commits          the image moves on, and who hears of it
    leadership, accumulator                                      what the controller appends
    stored_log       the machine's log, over what is on disk     cutting         giving up its end
    snapshot_generator     snapshots from memory                       metrics         by Kafka's names
"""
