"""The Kafka client of the command line, the simulator and the tests.

    async with Client(world, "127.0.0.1:9092") as client:
        await client.topics.create("orders", partitions=3)
        async with client.producer() as producer:
            delivered = await (await producer.send("orders", b"value", key=b"key"))
        async with client.fetcher() as fetcher:
            fetcher.assign(TopicPartition("orders", 0), 0)
            fetched = await fetcher.poll(500)
        async with client.consumer("billing", ["orders"]) as consumer:
            fetched = await consumer.poll(500)
        async with client.transactional_producer("copier") as producer, producer.transaction():
            await producer.send("orders", b"value")

The cores in `core/` make the decisions, without clock, sockets or tasks. The shells (`connection`, `connection_pool`,
`routing`, `coordinators`, `producer`, `transactional_producer`, `fetcher`, `consumer`, and the requests in `admin/`) do
the IO through a `World`, so that the same client runs on virtual time. `peers` is the port through which nodes call
each other.
"""
