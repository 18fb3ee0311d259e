import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** One record at a time from a producer through the broker to a consumer: arguments bootstrap, topic, records, bytes. */
public class EndToEnd {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[2]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("acks", "all");
        settings.put("linger.ms", "0");
        settings.put("fetch.max.wait.ms", "500");
        for (String side : List.of("key", "value")) {
            settings.put(side + ".serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
            settings.put(side + ".deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        }
        byte[] payload = new byte[Integer.parseInt(args[3])];
        TopicPartition partition = new TopicPartition(args[1], 0);
        long[] nanos = new long[count];
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings);
                KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(List.of(partition));
            consumer.seekToEnd(List.of(partition));
            consumer.position(partition);
            for (int i = -count / 5; i < count; i++) {
                long began = System.nanoTime();
                producer.send(new ProducerRecord<>(args[1], payload)).get();
                while (consumer.poll(Duration.ofSeconds(5)).isEmpty()) {
                }
                if (i >= 0) {
                    nanos[i] = System.nanoTime() - began;
                }
            }
        }
        Arrays.sort(nanos);
        double average = Arrays.stream(nanos).average().orElse(0) / 1e6;
        System.out.printf("%.3f %.3f%n", average, nanos[(int) (count * 0.99)] / 1e6);
    }
}
