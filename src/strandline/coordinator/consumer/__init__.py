"""Consumer groups (KIP-848): the coordinator assigns partitions, members reconcile with heartbeats.

topics           what the machine asks of the metadata: topics by name and id
member           a member as its records say: subscription, epochs, partitions
group            the members, target assignment and epochs of one group, on the shard's timeline
group_records    records of a consumer group, as Kafka writes them
reconciliation   the next step of a member from its current to its target assignment
assignors        partitions to members: `range` and `uniform`
target           the target assignment of a group, computed in slices
regexes          subscriptions by regular expression, matched on the coordinator
metadata_hash    a hash of the subscribed topics, by which their changes are noticed
heartbeat        ConsumerGroupHeartbeat: join, full and partial heartbeats
leaving          members that leave, time out or are fenced
describe         ConsumerGroupDescribe
"""
