import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;

/**
 * Checks of the Java client with one node, one line each: its name, a tab, the result. The results contain nothing that
 * differs between runs (ports, ids, the time), so that two nodes can be compared.
 */
final class Checks {
    static final int TIMEOUT_S = 90;
    /** The base of record timestamps: close to the present, so that retention deletes nothing. */
    static final long BEGAN_MS = System.currentTimeMillis() - 60_000;

    static String bootstrap;
    static Admin admin;

    private static String only;

    private Checks() { }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        only = arguments.length > 1 ? arguments[1] : "";
        try (Admin opened = Admin.create(client())) {
            admin = opened;
            ProducerChecks.all();
            ConsumerChecks.all();
            TopicChecks.all();
            ConfigChecks.all();
            OffsetChecks.all();
            ClusterChecks.all();
        }
    }

    static void check(String name, Callable<Object> body) {
        if (!name.startsWith(only)) {
            return;
        }
        long began = System.nanoTime();
        String outcome;
        try {
            outcome = String.valueOf(body.call());
        } catch (Throwable thrown) {
            outcome = "threw " + named(thrown);
            if (!only.isEmpty()) {
                thrown.printStackTrace();
            }
        }
        System.out.println(name + "\t" + outcome.replace('\n', ' '));
        System.err.println(name + ": " + (System.nanoTime() - began) / 1_000_000 + " ms");
    }

    static Properties client() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("request.timeout.ms", "60000");
        properties.put("default.api.timeout.ms", "60000");
        properties.put("enable.metrics.push", "false");
        return properties;
    }

    static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(TIMEOUT_S, TimeUnit.SECONDS);
    }

    /** The result of a future as text: its value, or the name of its exception. */
    static String outcome(KafkaFuture<?> future) {
        try {
            return String.valueOf(get(future));
        } catch (Exception thrown) {
            return named(thrown);
        }
    }

    /** The name of the exception without its message, which depends on the server. */
    static String named(Throwable thrown) {
        Throwable cause = thrown;
        while (cause instanceof ExecutionException && cause.getCause() != null) {
            cause = cause.getCause();
        }
        return cause.getClass().getSimpleName();
    }

    static TopicPartition create(String name, String... settings) throws Exception {
        return create(name, 1, settings);
    }

    static TopicPartition create(String name, int partitions, String... settings) throws Exception {
        NewTopic topic = new NewTopic(name, partitions, (short) 1).configs(pairs(settings));
        get(admin.createTopics(List.of(topic)).all());
        awaitTopic(name);
        return new TopicPartition(name, 0);
    }

    /** Waits until the broker has replayed the creation, which is later than the response of the controller. */
    static void awaitTopic(String name) throws Exception {
        eventually(true, () -> get(admin.listTopics().names()).contains(name));
    }

    static Map<String, String> pairs(String... words) {
        Map<String, String> pairs = new java.util.TreeMap<>();
        for (int index = 0; index < words.length; index += 2) {
            pairs.put(words[index], words[index + 1]);
        }
        return pairs;
    }

    static <T extends Comparable<? super T>> List<T> sorted(Collection<T> values) {
        List<T> list = new ArrayList<>(values);
        list.sort(null);
        return list;
    }

    static Object eventually(Object wanted, Callable<Object> read) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
        Object found = read.call();
        while (!wanted.equals(found) && System.nanoTime() < deadline) {
            Thread.sleep(20);
            found = read.call();
        }
        return found;
    }
}
