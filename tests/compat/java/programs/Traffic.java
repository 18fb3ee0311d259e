import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32C;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producers, consumers and records for the checks, and short summaries of what was produced and consumed. */
final class Traffic {
    private Traffic() { }

    static KafkaProducer<byte[], byte[]> producer(String... settings) {
        Properties properties = Checks.client();
        properties.put("delivery.timeout.ms", "80000");
        properties.putAll(Checks.pairs(settings));
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(String... settings) {
        Properties properties = Checks.client();
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "none");
        // close() waits for the fetch in flight, so fetches should be short.
        properties.put("fetch.max.wait.ms", "20");
        properties.putAll(Checks.pairs(settings));
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static ProducerRecord<byte[], byte[]> record(TopicPartition to, long sinceBegan, String key, String value) {
        return new ProducerRecord<>(to.topic(), to.partition(), Checks.BEGAN_MS + sinceBegan, bytes(key), bytes(value));
    }

    /** `count` compressible records, one millisecond apart. */
    static List<ProducerRecord<byte[], byte[]>> records(TopicPartition to, int count) {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            records.add(record(to, number, "key " + number % 7, ("value " + number + " ").repeat(number % 20)));
        }
        return records;
    }

    static List<RecordMetadata> send(
            KafkaProducer<byte[], byte[]> producer, List<ProducerRecord<byte[], byte[]>> records) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (ProducerRecord<byte[], byte[]> record : records) {
            sent.add(producer.send(record));
        }
        producer.flush();
        List<RecordMetadata> acknowledged = new ArrayList<>();
        for (Future<RecordMetadata> future : sent) {
            acknowledged.add(future.get(Checks.TIMEOUT_S, TimeUnit.SECONDS));
        }
        return acknowledged;
    }

    static void fill(TopicPartition to, int count, String... settings) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            send(producer, records(to, count));
        }
    }

    /** All records from the beginning up to the end offset of the consumer. */
    static List<ConsumerRecord<byte[], byte[]>> read(TopicPartition from, String... settings) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            consumer.assign(List.of(from));
            consumer.seekToBeginning(List.of(from));
            return readOn(consumer, from, consumer.endOffsets(List.of(from)).get(from));
        }
    }

    static List<ConsumerRecord<byte[], byte[]>> readOn(
            KafkaConsumer<byte[], byte[]> consumer, TopicPartition from, long until) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Checks.TIMEOUT_S);
        while (consumer.position(from) < until && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(500)).forEach(found::add);
        }
        return found;
    }

    /** The number of records received, up to the expected number: one poll may return only some of them. */
    static int count(KafkaConsumer<byte[], byte[]> consumer, int wanted) {
        int found = 0;
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Checks.TIMEOUT_S);
        while (found < wanted && System.nanoTime() < deadline) {
            found += consumer.poll(Duration.ofMillis(500)).count();
        }
        return found;
    }

    /** The number of records, their first and last offsets, and a checksum over all fields. */
    static String summary(List<ConsumerRecord<byte[], byte[]>> records) {
        if (records.isEmpty()) {
            return "nothing";
        }
        CRC32C checksum = new CRC32C();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            number(checksum, record.offset());
            number(checksum, record.timestamp() - Checks.BEGAN_MS);
            number(checksum, record.timestampType().id);
            number(checksum, record.leaderEpoch().orElse(-1));
            data(checksum, record.key());
            data(checksum, record.value());
            for (Header header : record.headers()) {
                data(checksum, bytes(header.key()));
                data(checksum, header.value());
            }
        }
        long first = records.get(0).offset();
        long last = records.get(records.size() - 1).offset();
        return records.size() + " from " + first + " to " + last + " sum " + checksum.getValue();
    }

    private static void number(CRC32C checksum, long value) {
        checksum.update(ByteBuffer.allocate(8).putLong(0, value));
    }

    private static void data(CRC32C checksum, byte[] value) {
        number(checksum, value == null ? -1 : value.length);
        if (value != null) {
            checksum.update(value);
        }
    }
}
