"""One client for all of us: command line, simulator, tests, later Spark.

    async with Client(world, "127.0.0.1:9092") as client:
        await client.topics.create("orders", partitions=3)
        async with client.producer() as producer:
            delivered = await (await producer.send("orders", b"value", key=b"key"))
        async with client.fetcher() as fetcher:
            fetcher.assign(TopicPartition("orders", 0), 0)
            fetched = await fetcher.poll(500)

Cores (`wire`, `versions`, `view`, `accumulator`, `session`, `positions`, `partitioner`) decide and know no clock,
socket or task; shells (`connection`, `routing`, `producer`, `fetcher`, and the admin calls) carry bytes and time to
them through a `World`, so that the same client runs on virtual time.
"""
