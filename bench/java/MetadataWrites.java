import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Metadata writes as fast as they are acknowledged: arguments bootstrap, count, clients. Every client has its own
 * connections and one write in flight. Prints topics created per second (one request each), configs altered per second,
 * and the number of failed writes.
 */
public class MetadataWrites {
    private static final AtomicInteger FAILED = new AtomicInteger();

    private interface Write {
        KafkaFuture<Void> with(Admin admin, int number);
    }

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[1]);
        String run = Long.toString(System.nanoTime(), 36);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("default.api.timeout.ms", "120000");
        settings.put("request.timeout.ms", "60000");
        settings.put("enable.metrics.push", "false");
        List<Admin> clients = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(args[2]); number++) {
            clients.add(Admin.create(settings));
        }
        Write create = (admin, number) ->
                admin.createTopics(List.of(new NewTopic("w-" + run + "-" + number, 1, (short) 3))).all();
        Write alter = (admin, number) -> {
            ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "w-" + run + "-" + number % 10);
            ConfigEntry entry = new ConfigEntry("retention.ms", Integer.toString(1_000_000 + number));
            return admin.incrementalAlterConfigs(
                    Map.of(topic, List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all();
        };
        rate(clients, create, 0, 2 * clients.size());
        double created = rate(clients, create, 2 * clients.size(), count);
        rate(clients, alter, 0, clients.size());
        double altered = rate(clients, alter, clients.size(), count);
        System.out.printf("%.1f %.1f %d%n", created, altered, FAILED.get());
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static double rate(List<Admin> clients, Write write, int first, int count) throws Exception {
        AtomicInteger next = new AtomicInteger(first);
        CountDownLatch ended = new CountDownLatch(clients.size());
        long began = System.nanoTime();
        for (Admin client : clients) {
            Thread thread = new Thread(() -> {
                for (int number = next.getAndIncrement(); number < first + count; number = next.getAndIncrement()) {
                    try {
                        write.with(client, number).get();
                    } catch (Exception failed) {
                        FAILED.incrementAndGet();
                    }
                }
                ended.countDown();
            });
            thread.setDaemon(true);
            thread.start();
        }
        ended.await();
        return count / ((System.nanoTime() - began) / 1e9);
    }
}
