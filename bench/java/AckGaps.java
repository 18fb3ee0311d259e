import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Produces with default configs until its standard input ends, and prints every pause between two acknowledgements of
 * more than 100 ms: the wall time of its end, and its length in milliseconds. Arguments: bootstrap, topic.
 */
final class AckGaps {
    private AckGaps() { }

    public static void main(String[] arguments) throws Exception {
        Properties configs = new Properties();
        configs.put("bootstrap.servers", arguments[0]);
        AtomicLong last = new AtomicLong(-1);
        byte[] value = new byte[100];
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(configs, new ByteArraySerializer(), new ByteArraySerializer())) {
            while (System.in.available() == 0) {
                producer.send(new ProducerRecord<>(arguments[1], value), (metadata, error) -> {
                    if (error != null) {
                        System.out.println("error " + error);
                        return;
                    }
                    long now = System.currentTimeMillis();
                    long before = last.getAndSet(now);
                    if (before < 0) {
                        System.out.println("first");
                    } else if (now - before > 100) {
                        System.out.println(now + " " + (now - before));
                    }
                });
                Thread.sleep(2);
            }
        }
    }
}
