"""Server-side assignors: which member should own which partition. Named as in `group.consumer.assignors`.

An assignor is a generator: it yields between slices of its work and returns the assignment of every member, so that a
large group does not hold up the event loop.

    specification    what an assignor is given
    range_assignor   contiguous partitions of each topic, the same for topics with equally many partitions
    uniform          equally many partitions for every member, moving as few as possible; members that subscribe to the
                     same topics
    uniform_mixed    the same for members that subscribe to different topics
"""
