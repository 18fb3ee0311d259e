import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;

final class ProducerChecks {
    private ProducerChecks() { }

    static void all() {
        settings();
        contents();
        rejections();
    }

    private static void settings() {
        Checks.check("produce with defaults", () -> roundTrip("defaults", new String[0]));
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            Checks.check("produce with codec " + codec, () ->
                    roundTrip("codec-" + codec, new String[0], "compression.type", codec, "linger.ms", "50"));
            Checks.check("produce to a topic of codec " + codec, () ->
                    roundTrip("topic-codec-" + codec, new String[] {"compression.type",
                            codec.equals("none") ? "uncompressed" : codec}, "compression.type", "lz4"));
        }
        for (String acks : List.of("1", "all")) {
            Checks.check("produce with acks " + acks, () ->
                    roundTrip("acks-" + acks, new String[0], "acks", acks, "enable.idempotence", "false"));
        }
        Checks.check("produce with acks 0", () -> {
            TopicPartition to = Checks.create("acks-0");
            try (KafkaProducer<byte[], byte[]> producer = Traffic.producer("acks", "0", "enable.idempotence", "false")) {
                RecordMetadata told = Traffic.send(producer, Traffic.records(to, 100)).get(99);
                Checks.eventually(100L, () -> OffsetChecks.end(to));
                return told.hasOffset() + ", " + Traffic.summary(Traffic.read(to));
            }
        });
        Checks.check("produce one record per request", () ->
                roundTrip("single", new String[0], "batch.size", "1", "linger.ms", "0"));
        Checks.check("produce large batches", () -> {
            TopicPartition to = Checks.create("large", "max.message.bytes", "20000000");
            String[] large = {"batch.size", "4000000", "linger.ms", "100", "max.request.size", "20000000",
                "buffer.memory", "60000000"};
            List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
            for (int number = 0; number < 20; number++) {
                records.add(Traffic.record(to, number, null, ("large " + number).repeat(50_000)));
            }
            records.add(Traffic.record(to, 20, null, "x".repeat(10_000_000)));
            try (KafkaProducer<byte[], byte[]> producer = Traffic.producer(large)) {
                Traffic.send(producer, records);
            }
            return Traffic.summary(Traffic.read(to));
        });
        Checks.check("a batch that is too large is split by the client", () ->
                roundTrip("split", new String[] {"max.message.bytes", "3000"}, "linger.ms", "200"));
    }

    private static void contents() {
        Checks.check("null keys, null values, empty values, headers", () -> {
            TopicPartition to = Checks.create("contents");
            ProducerRecord<byte[], byte[]> headed = Traffic.record(to, 1, "k", null);
            headed.headers().add("a", Traffic.bytes("1")).add("a", Traffic.bytes("2")).add("", new byte[0]);
            headed.headers().add("ü", null);
            try (KafkaProducer<byte[], byte[]> producer = Traffic.producer()) {
                Traffic.send(producer, List.of(Traffic.record(to, 0, null, "v"), headed, Traffic.record(to, 2, "", "")));
            }
            StringBuilder text = new StringBuilder();
            for (ConsumerRecord<byte[], byte[]> record : Traffic.read(to)) {
                text.append(Arrays.toString(record.key())).append(Arrays.toString(record.value()));
                for (Header header : record.headers()) {
                    text.append(' ').append(header.key()).append('=').append(Arrays.toString(header.value()));
                }
                text.append("; ");
            }
            return text;
        });
        Checks.check("log append time", () -> {
            TopicPartition to = Checks.create("append-time", "message.timestamp.type", "LogAppendTime");
            try (KafkaProducer<byte[], byte[]> producer = Traffic.producer("compression.type", "zstd")) {
                RecordMetadata told = Traffic.send(producer, Traffic.records(to, 10)).get(9);
                ConsumerRecord<byte[], byte[]> record = Traffic.read(to).get(9);
                long late = System.currentTimeMillis() - record.timestamp();
                return record.timestampType() + " " + (told.timestamp() == record.timestamp()) + " "
                        + (late >= 0 && late < 30_000);
            }
        });
        Checks.check("a topic is created when it is produced to", () -> {
            TopicPartition to = new TopicPartition("created-by-producing", 1);
            try (KafkaProducer<byte[], byte[]> producer = Traffic.producer()) {
                Traffic.send(producer, Traffic.records(to, 3));
                return producer.partitionsFor(to.topic()).size() + " " + Traffic.summary(Traffic.read(to));
            }
        });
        Checks.check("keys determine partitions", () -> {
            Checks.create("keyed", 4);
            try (KafkaProducer<byte[], byte[]> producer = Traffic.producer()) {
                List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
                for (int number = 0; number < 40; number++) {
                    records.add(new ProducerRecord<>("keyed", Traffic.bytes("k" + number), new byte[1]));
                }
                int[] counts = new int[4];
                for (RecordMetadata told : Traffic.send(producer, records)) {
                    counts[told.partition()]++;
                }
                return Arrays.toString(counts);
            }
        });
    }

    private static void rejections() {
        Checks.check("a record larger than max.message.bytes", () ->
                rejected(Checks.create("small", "max.message.bytes", "1000"), 0, "k", "x".repeat(2000)));
        Checks.check("a record without a key for a compacted topic", () ->
                rejected(Checks.create("compacted", "cleanup.policy", "compact"), 0, null, "v"));
        Checks.check("a record too old for the topic", () ->
                rejected(Checks.create("old", "message.timestamp.before.max.ms", "1000"), -100_000, "k", "v"));
        Checks.check("a record too far in the future", () ->
                rejected(Checks.create("future", "message.timestamp.after.max.ms", "1000"), 500_000, "k", "v"));
        Checks.check("a topic with an invalid name", () ->
                rejected(new TopicPartition("il/legal", 0), 0, "k", "v"));
        Checks.check("too few replicas in sync", () -> {
            TopicPartition to = Checks.create("two-in-sync", "min.insync.replicas", "2");
            String[] impatient = {"retries", "1", "retry.backoff.ms", "10"};
            String one = rejected(to, 0, "k", "v", "acks", "1", "enable.idempotence", "false");
            return rejected(to, 0, "k", "v", impatient) + " " + one;
        });
        Checks.check("valid records beside an invalid one", () -> {
            TopicPartition to = Checks.create("mixed", "cleanup.policy", "compact");
            List<String> outcomes = new ArrayList<>();
            try (KafkaProducer<byte[], byte[]> producer = Traffic.producer("linger.ms", "500")) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (String key : Arrays.asList("a", null, "b")) {
                    sent.add(producer.send(Traffic.record(to, 0, key, "v")));
                }
                for (Future<RecordMetadata> future : sent) {
                    outcomes.add(outcome(future));
                }
            }
            return outcomes;
        });
    }

    private static Object roundTrip(String topic, String[] config, String... producing) throws Exception {
        TopicPartition to = Checks.create(topic, config);
        try (KafkaProducer<byte[], byte[]> producer = Traffic.producer(producing)) {
            List<RecordMetadata> told = Traffic.send(producer, Traffic.records(to, 500));
            for (int number = 0; number < told.size(); number++) {
                if (told.get(number).offset() != number) {
                    return "record " + number + " got offset " + told.get(number).offset();
                }
            }
        }
        return Traffic.summary(Traffic.read(to));
    }

    private static String rejected(TopicPartition to, long sinceBegan, String key, String value, String... settings) {
        try (KafkaProducer<byte[], byte[]> producer = Traffic.producer(settings)) {
            return outcome(producer.send(Traffic.record(to, sinceBegan, key, value)));
        }
    }

    private static String outcome(Future<RecordMetadata> sent) {
        try {
            return "offset " + sent.get(Checks.TIMEOUT_S, java.util.concurrent.TimeUnit.SECONDS).offset();
        } catch (Exception thrown) {
            return Checks.named(thrown);
        }
    }
}
