import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;

final class ConsumerChecks {
    private ConsumerChecks() { }

    static void all() {
        Checks.check("consume uncommitted and committed", () -> {
            TopicPartition from = filled("isolation", 1000);
            return Traffic.summary(Traffic.read(from, "isolation.level", "read_uncommitted")) + "; "
                    + Traffic.summary(Traffic.read(from, "isolation.level", "read_committed"));
        });
        Checks.check("consume from the middle", () -> {
            TopicPartition from = filled("middle", 1000, "batch.size", "2000");
            try (KafkaConsumer<byte[], byte[]> consumer = assigned(from)) {
                consumer.seek(from, 637);
                return Traffic.summary(Traffic.readOn(consumer, from, 1000));
            }
        });
        Checks.check("fetch a batch larger than the limits", () -> {
            TopicPartition from = filled("limits", 1000, "batch.size", "100000", "linger.ms", "100");
            return Traffic.summary(Traffic.read(from, "max.partition.fetch.bytes", "100", "fetch.max.bytes", "100"));
        });
        Checks.check("fetch waits for enough bytes", () -> {
            TopicPartition from = filled("patient", 10);
            try (KafkaConsumer<byte[], byte[]> consumer =
                    Traffic.consumer("fetch.min.bytes", "1000000", "fetch.max.wait.ms", "300")) {
                consumer.assign(List.of(from));
                consumer.seek(from, 0);
                long began = System.nanoTime();
                ConsumerRecords<byte[], byte[]> found = consumer.poll(Duration.ofSeconds(Checks.TIMEOUT_S));
                long waited = (System.nanoTime() - began) / 1_000_000;
                return found.count() + " " + (waited >= 300 && waited < 20_000 ? "in time" : waited + " ms");
            }
        });
        Checks.check("a long poll ends when a record arrives", () -> {
            TopicPartition from = Checks.create("awaited");
            KafkaConsumer<byte[], byte[]> consumer = Traffic.consumer("fetch.max.wait.ms", "50000");
            try {
                consumer.assign(List.of(from));
                consumer.seek(from, 0);
                consumer.poll(Duration.ofMillis(200));
                Traffic.fill(from, 5);
                long began = System.nanoTime();
                int found = Traffic.readOn(consumer, from, 5).size();
                return found + " " + ((System.nanoTime() - began) / 1_000_000 < 20_000 ? "at once" : "late");
            } finally {
                // Without a timeout of zero, close() would wait for the fetch in flight.
                consumer.close(CloseOptions.timeout(Duration.ZERO));
            }
        });
        Checks.check("beginning, end, position and lag", () -> {
            TopicPartition from = filled("positions", 300);
            Checks.get(Checks.admin.deleteRecords(Map.of(from, RecordsToDelete.beforeOffset(42))).all());
            try (KafkaConsumer<byte[], byte[]> consumer = assigned(from)) {
                consumer.seekToBeginning(List.of(from));
                int first = Traffic.count(consumer, 1);
                return consumer.beginningOffsets(List.of(from)) + " " + consumer.endOffsets(List.of(from)) + " "
                        + (first > 0) + " " + (consumer.position(from) + consumer.currentLag(from).orElse(-1));
            }
        });
        Checks.check("offsets for times", ConsumerChecks::offsetsForTimes);
        Checks.check("an offset out of range with no reset", () -> {
            TopicPartition from = filled("out-of-range", 5);
            try (KafkaConsumer<byte[], byte[]> consumer = assigned(from)) {
                consumer.seek(from, 99);
                return consumer.poll(Duration.ofSeconds(10)).count();
            }
        });
        for (String reset : List.of("earliest", "latest", "by_duration:PT1H")) {
            Checks.check("an offset out of range with reset " + reset.substring(0, 6), () -> reset(reset));
        }
        Checks.check("two partitions in one session", () -> {
            TopicPartition one = Checks.create("session", 2);
            TopicPartition other = new TopicPartition("session", 1);
            try (KafkaConsumer<byte[], byte[]> consumer = Traffic.consumer()) {
                consumer.assign(List.of(one, other));
                consumer.seekToBeginning(List.of(one, other));
                int found = consumer.poll(Duration.ofMillis(100)).count();
                for (TopicPartition to : List.of(one, other, one)) {
                    Traffic.fill(to, 10);
                    found += Traffic.count(consumer, 10);
                }
                consumer.pause(List.of(one));
                Traffic.fill(one, 10);
                Traffic.fill(other, 10);
                found += Traffic.count(consumer, 10);
                consumer.resume(List.of(one));
                found += Traffic.count(consumer, 10);
                return found;
            }
        });
        Checks.check("a deleted topic under a consumer", () -> {
            TopicPartition from = filled("vanishing", 5);
            try (KafkaConsumer<byte[], byte[]> consumer = Traffic.consumer("allow.auto.create.topics", "false")) {
                consumer.assign(List.of(from));
                consumer.seek(from, 0);
                int found = Traffic.readOn(consumer, from, 5).size();
                Checks.get(Checks.admin.deleteTopics(List.of("vanishing")).all());
                found += consumer.poll(Duration.ofMillis(300)).count();
                return found + " " + consumer.listTopics().containsKey("vanishing");
            }
        });
        Checks.check("partitions of a topic", () -> {
            Checks.create("partitions-for", 3);
            try (KafkaConsumer<byte[], byte[]> consumer = Traffic.consumer()) {
                return consumer.partitionsFor("partitions-for").stream()
                        .map(each -> each.partition() + " led by " + each.leader().id() + " on "
                                + each.replicas().length + "/" + each.inSyncReplicas().length + "/"
                                + each.offlineReplicas().length)
                        .sorted().collect(Collectors.toList());
            }
        });
    }

    private static Object offsetsForTimes() throws Exception {
        TopicPartition from = Checks.create("times");
        try (var producer = Traffic.producer("compression.type", "gzip", "linger.ms", "100")) {
            for (int number = 0; number < 100; number++) {
                producer.send(Traffic.record(from, number * 10, "k", "value " + number));
                if (number == 40) {
                    producer.flush();
                }
            }
        }
        try (KafkaConsumer<byte[], byte[]> consumer = assigned(from)) {
            Map<Integer, String> found = new TreeMap<>();
            for (int since : List.of(-5, 0, 1, 395, 400, 401, 990, 991)) {
                OffsetAndTimestamp at = consumer.offsetsForTimes(Map.of(from, Checks.BEGAN_MS + since)).get(from);
                found.put(since, at == null ? "none" : at.offset() + " at " + (at.timestamp() - Checks.BEGAN_MS)
                        + " of epoch " + at.leaderEpoch().orElse(-1));
            }
            return found;
        }
    }

    private static Object reset(String how) throws Exception {
        TopicPartition from = filled("reset-" + how.substring(0, 6), 100);
        try (KafkaConsumer<byte[], byte[]> consumer = Traffic.consumer("auto.offset.reset", how)) {
            consumer.assign(List.of(from));
            consumer.seek(from, 200);
            int found = 0;
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Checks.TIMEOUT_S);
            while (consumer.position(from) == 200 && System.nanoTime() < deadline) {
                found += consumer.poll(Duration.ofMillis(200)).count();
            }
            found += Traffic.readOn(consumer, from, 100).size();
            return found + " " + consumer.position(from);
        }
    }

    private static TopicPartition filled(String name, int count, String... settings) throws Exception {
        TopicPartition created = Checks.create(name);
        Traffic.fill(created, count, settings);
        return created;
    }

    private static KafkaConsumer<byte[], byte[]> assigned(TopicPartition from) {
        KafkaConsumer<byte[], byte[]> consumer = Traffic.consumer();
        consumer.assign(List.of(from));
        return consumer;
    }
}
