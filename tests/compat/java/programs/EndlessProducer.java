import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;

/**
 * An idempotent producer that runs until a file appears, also while the node is restarted; then it consumes all records
 * and prints lost and duplicated ones. Arguments: bootstrap, topic, a file for the number of acknowledgements, the file
 * that stops it.
 */
final class EndlessProducer {
    private static final int PARTITIONS = 3;

    private EndlessProducer() { }

    public static void main(String[] arguments) throws Exception {
        Checks.bootstrap = arguments[0];
        List<TreeMap<Long, Integer>> acked = new ArrayList<>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            acked.add(new TreeMap<>());
        }
        List<String> problems = new ArrayList<>();
        int sent = produce(arguments, acked, problems);
        for (int partition = 0; partition < PARTITIONS; partition++) {
            compare(new TopicPartition(arguments[1], partition), acked.get(partition), problems);
        }
        System.out.println(sent + " sent, problems: " + problems.subList(0, Math.min(10, problems.size())));
    }

    private static int produce(String[] arguments, List<TreeMap<Long, Integer>> acked, List<String> problems)
            throws Exception {
        AtomicInteger count = new AtomicInteger();
        Path counted = Path.of(arguments[2]);
        int sent = 0;
        try (KafkaProducer<byte[], byte[]> producer = Traffic.producer("delivery.timeout.ms", "300000", "acks", "all",
                "linger.ms", "1", "reconnect.backoff.max.ms", "100", "retry.backoff.max.ms", "100")) {
            while (!Files.exists(Path.of(arguments[3]))) {
                int number = sent++;
                TopicPartition to = new TopicPartition(arguments[1], number % PARTITIONS);
                producer.send(Traffic.record(to, 0, "k", String.valueOf(number)), (told, error) -> {
                    if (error != null) {
                        problems.add(number + " was rejected: " + error);
                    } else {
                        acked.get(told.partition()).put(told.offset(), number);
                        count.incrementAndGet();
                    }
                });
                if (number % 20 == 0) {
                    Files.writeString(counted, count.toString());
                    Thread.sleep(1);
                }
            }
        }
        if (count.get() != sent) {
            problems.add(count + " of " + sent + " were acknowledged");
        }
        return sent;
    }

    private static void compare(TopicPartition at, TreeMap<Long, Integer> acked, List<String> problems) {
        List<ConsumerRecord<byte[], byte[]>> found = Traffic.read(at);
        if (found.size() != acked.size()) {
            problems.add(found.size() + " records in " + at + ", but " + acked.size() + " acknowledged");
        }
        int wanted = at.partition();
        for (ConsumerRecord<byte[], byte[]> record : found) {
            String value = new String(record.value());
            if (!value.equals(String.valueOf(wanted)) || !Integer.valueOf(wanted).equals(acked.get(record.offset()))) {
                problems.add(at + " has " + value + " at " + record.offset() + ", not " + wanted + ", of which it was "
                        + "told " + acked.get(record.offset()));
            }
            wanted += PARTITIONS;
        }
    }
}
