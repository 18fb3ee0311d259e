"""Transactions: one state machine per transactional id, in the shard of `__transaction_state` that its hash names.

state        the value of one transactional id, its legal moves, its record
machine      the machine of a shard: replay, timers, ids that time out or expire
producers    InitProducerId: producer ids and epochs, fencing
partitions   AddPartitionsToTxn and AddOffsetsToTxn, verification of ongoing transactions
ending       EndTxn, aborts by timeout, completion after the markers
describe     DescribeTransactions and ListTransactions
"""
