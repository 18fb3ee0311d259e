import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.ConfigResource.Type;

/**
 * A workload for a cluster of one node, in rounds that may be served by different implementations: topics and records
 * of every kind, deleted records, compacted and deleted topics, groups and their offsets. One idempotent producer is used in all rounds, so that
 * its state must survive a handover.
 */
final class Workload {
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    private static final TopicPartition PLAIN = new TopicPartition("plain", 0);
    private static final TopicPartition ROLLED = new TopicPartition("rolled", 0);
    private static final TopicPartition LARGE = new TopicPartition("large", 0);
    private static final TopicPartition TRIMMED = new TopicPartition("trimmed", 0);
    private static final TopicPartition COMPACTED = new TopicPartition("compacted", 0);

    private static KafkaProducer<byte[], byte[]> lasting;

    private Workload() { }

    public static void main(String[] arguments) throws Exception {
        Checks.bootstrap = arguments[0];
        int round = Integer.parseInt(arguments[1]);
        try (Admin admin = Admin.create(Checks.client())) {
            Checks.admin = admin;
            if (round == 0) {
                found();
            }
            settings(round);
            topics(round);
            records(round);
            groups(round);
            compact();
            if (arguments.length > 2) {
                lasting.close();
            }
        }
    }

    private static void found() throws Exception {
        Checks.create("plain", 3);
        Checks.create("rolled", "segment.ms", "1000");
        Checks.create("large", "segment.bytes", "1048576", "index.interval.bytes", "100");
        Checks.create("trimmed", "segment.ms", "1000");
        Checks.create("compacted", "cleanup.policy", "compact", "segment.ms", "1000",
                "min.cleanable.dirty.ratio", "0.01");
        Checks.create("append-time", "message.timestamp.type", "LogAppendTime", "compression.type", "zstd");
        Checks.create("doomed", 2);
        lasting = Traffic.producer("linger.ms", "20");
    }

    private static void settings(int round) throws Exception {
        alter(Type.TOPIC, "plain", "retention.ms", String.valueOf(900_000_000L + round));
        alter(Type.BROKER, "1", "log.retention.ms", String.valueOf(800_000_000L + round));
        alter(Type.BROKER, "", "message.max.bytes", String.valueOf(2_000_000 + round));
        alter(Type.GROUP, "some-group", "consumer.session.timeout.ms", String.valueOf(50_000 + round));
        alter(Type.CLIENT_METRICS, "some-metrics", "interval.ms", String.valueOf(5_000 + round));
    }

    private static void alter(Type type, String name, String key, String value) throws Exception {
        ConfigChecks.alter(new ConfigResource(type, name), ConfigChecks.operation(key, value, OpType.SET));
    }

    /** Deletes a topic and creates it again, adds partitions to a topic, and creates a new topic. */
    private static void topics(int round) throws Exception {
        Traffic.fill(new TopicPartition("doomed", 1), 20);
        Checks.get(Checks.admin.deleteTopics(List.of("doomed")).all());
        Checks.eventually(false, () -> Checks.get(Checks.admin.listTopics().names()).contains("doomed"));
        Checks.create("doomed", 2);
        Traffic.fill(new TopicPartition("doomed", 0), 5 + round);
        Checks.get(Checks.admin.createPartitions(Map.of("plain", NewPartitions.increaseTo(4 + round))).all());
        Traffic.fill(Checks.create("new-" + round, 2, "flush.messages", "1"), 10);
    }

    private static void records(int round) throws Exception {
        for (String codec : CODECS) {
            Traffic.fill(new TopicPartition("plain", round), 50, "compression.type", codec, "linger.ms", "50");
        }
        Traffic.send(lasting, Traffic.records(PLAIN, 200));
        ProducerRecord<byte[], byte[]> headed = Traffic.record(PLAIN, round, null, "headed");
        headed.headers().add("h", Traffic.bytes("1")).add("h", null);
        Traffic.send(lasting, List.of(headed, Traffic.record(PLAIN, round, "", "")));
        for (TopicPartition to : List.of(ROLLED, TRIMMED)) {
            for (int batch = 0; batch < 6; batch++) {
                Traffic.send(lasting, spaced(to, round * 20_000 + batch * 700, 10));
            }
        }
        for (int batch = 0; batch < 12; batch++) {
            List<ProducerRecord<byte[], byte[]>> sent = new ArrayList<>();
            for (int number = 0; number < 4; number++) {
                sent.add(Traffic.record(LARGE, round * 1000 + batch, "k" + number, "large ".repeat(8_000)));
            }
            Traffic.send(lasting, sent);
        }
        Traffic.fill(new TopicPartition("append-time", 0), 100, "compression.type", "none");
        long trimmed = OffsetChecks.end(TRIMMED) - 25;
        Checks.get(Checks.admin.deleteRecords(Map.of(TRIMMED, RecordsToDelete.beforeOffset(trimmed))).all());
        for (int batch = 0; batch < 8; batch++) {
            List<ProducerRecord<byte[], byte[]>> sent = spaced(COMPACTED, round * 20_000 + batch * 2_000, 20);
            sent.add(Traffic.record(COMPACTED, round * 20_000 + batch * 2_000 + 30, "gone", batch % 2 == 0 ? "x" : null));
            Traffic.send(lasting, sent);
        }
    }

    /**
     * A group with a static member, which stays after its consumer was closed, a group whose only member leaves, one that
     * only commits offsets, and one that is deleted.
     */
    private static void groups(int round) throws Exception {
        join("static-group", round, "group.instance.id", "instance", "session.timeout.ms", "1800000");
        join("empty-group-" + round, round);
        for (String group : List.of("simple-group", "doomed-group")) {
            OffsetAndMetadata committed = new OffsetAndMetadata(round, Optional.of(0), "round " + round);
            Checks.get(Checks.admin.alterConsumerGroupOffsets(group, Map.of(PLAIN, committed)).all());
        }
        Checks.get(Checks.admin.deleteConsumerGroups(List.of("doomed-group")).all());
    }

    private static void join(String group, int round, String... settings) {
        List<String> all = new ArrayList<>(List.of("group.id", group, "auto.offset.reset", "earliest"));
        all.addAll(List.of(settings));
        try (KafkaConsumer<byte[], byte[]> consumer = Traffic.consumer(all.toArray(String[]::new))) {
            consumer.subscribe(List.of("large"));
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Checks.TIMEOUT_S);
            while (consumer.poll(Duration.ofMillis(100)).isEmpty() && System.nanoTime() < deadline) { }
            consumer.commitSync(Map.of(LARGE, new OffsetAndMetadata(10 + round, Optional.of(0), "round " + round)));
        }
    }

    private static List<ProducerRecord<byte[], byte[]>> spaced(TopicPartition to, long sinceBegan, int count) {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            records.add(Traffic.record(to, sinceBegan + number, "key " + number % 5, "value " + sinceBegan + number));
        }
        return records;
    }

    /** Waits until the cleaner has left one record per key before the active segment, or two of the deleted key. */
    private static void compact() throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Checks.TIMEOUT_S);
        while (Traffic.read(COMPACTED).size() > 21 + 6 && System.nanoTime() < deadline) {
            Thread.sleep(100);
        }
        System.out.println("compacted to " + Traffic.read(COMPACTED).size());
    }
}
