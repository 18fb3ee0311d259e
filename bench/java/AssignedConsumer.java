import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** Consumes a topic from its start without a group and prints the rate: arguments bootstrap, topic, records. */
public class AssignedConsumer {
    public static void main(String[] args) {
        long wanted = Long.parseLong(args[2]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("fetch.min.bytes", "1");
        settings.put("max.poll.records", "10000");
        settings.put("check.crcs", "false");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(args[1]).forEach(p -> partitions.add(new TopicPartition(args[1], p.partition())));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long seen = 0;
            long bytes = 0;
            long began = System.nanoTime();
            while (seen < wanted) {
                for (var record : consumer.poll(Duration.ofMillis(1000))) {
                    seen++;
                    bytes += record.value().length;
                }
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.printf("%.0f %.0f %.3f%n", seen / seconds, (double) bytes, seconds);
        }
    }
}
