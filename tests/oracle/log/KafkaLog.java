import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.StringJoiner;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RecordValidationException;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Apache Kafka's log, run on the same bytes as ours.
 *
 *   append DIRECTORY        one case per line: version|now|config|origin|hex of the records field
 *                           prints: error|log append time or indexes of rejected records|hex of the appended batch
 *   clean CONFIG            one pass per line: directory|now|first dirty offset or -|first uncleanable offset
 *                           prints: the offset up to which the log is clean now
 */
public class KafkaLog {
    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        if (arguments[0].equals("append")) {
            append(Path.of(arguments[1]), questions);
        } else {
            clean(configOf(arguments[1]), questions);
        }
        // Kafka's logs leave threads running.
        System.exit(0);
    }

    static void append(Path directory, BufferedReader questions) throws Exception {
        int number = 0;
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] fields = line.split("\\|", -1);
            File partition = directory.resolve(number++ + "/t-0").toFile();
            partition.mkdirs();
            System.out.println("ANSWER " + answerTo(partition, fields));
        }
    }

    static String answerTo(File partition, String[] fields) throws Exception {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(fields[4])));
        AppendOrigin origin = AppendOrigin.valueOf(fields[3]);
        try {
            if (origin == AppendOrigin.CLIENT) {
                ProduceRequest.validateRecords(Short.parseShort(fields[0]), records);
            }
            UnifiedLog log = open(partition, configOf(fields[2]), new Fixed(Long.parseLong(fields[1])));
            LogAppendInfo info = log.appendAsLeader(
                records, 7, origin, RequestLocal.noCaching(), VerificationGuard.SENTINEL, (short) 1);
            log.flush(false);
            byte[] written = Files.readAllBytes(partition.toPath().resolve("00000000000000000000.log"));
            return "NONE|" + info.logAppendTime() + "|" + HexFormat.of().formatHex(written);
        } catch (RecordValidationException refused) {
            StringJoiner indexes = new StringJoiner(" ");
            refused.recordErrors().forEach(error -> indexes.add(String.valueOf(error.batchIndex)));
            return Errors.forException(refused.invalidException()).name() + "|" + indexes + "|";
        } catch (Exception refused) {
            return Errors.forException(refused).name() + "||";
        }
    }

    static void clean(LogConfig config, BufferedReader passes) throws Exception {
        Fixed time = new Fixed(1_700_000_000_000L);
        Map<String, UnifiedLog> logs = new HashMap<>();
        long cleanUpTo = 0;
        for (String line = passes.readLine(); line != null; line = passes.readLine()) {
            String[] fields = line.split("\\|");
            if (!logs.containsKey(fields[0])) {
                UnifiedLog opened = open(new File(fields[0]), config, time);
                opened.updateHighWatermark(opened.logEndOffset());
                logs.put(fields[0], opened);
                cleanUpTo = 0;
            }
            UnifiedLog log = logs.get(fields[0]);
            long firstDirty = fields[2].equals("-") ? cleanUpTo : Long.parseLong(fields[2]);
            Throttler unthrottled = new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner-io", "bytes", time);
            Cleaner cleaner = new Cleaner(
                0, new SkimpyOffsetMap(4 << 20), 1 << 20, 8 << 20, 0.9, unthrottled, time, partition -> { });
            LogToClean todo = new LogToClean(log, firstDirty, Long.parseLong(fields[3]), false);
            cleanUpTo = cleaner.doClean(todo, Long.parseLong(fields[1])).getKey();
            System.out.println("ANSWER " + cleanUpTo);
        }
        for (UnifiedLog log : logs.values()) {
            log.flush(true);
        }
    }

    static UnifiedLog open(File partition, LogConfig config, Time time) throws Exception {
        return UnifiedLog.create(
            partition, config, 0, 0, new AtOnce(), new BrokerTopicStats(), time, Integer.MAX_VALUE,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false), Integer.MAX_VALUE, new LogDirFailureChannel(2),
            true, Optional.empty());
    }

    static LogConfig configOf(String text) {
        Properties properties = new Properties();
        for (String pair : text.split(";")) {
            if (!pair.isEmpty()) {
                int middle = pair.indexOf('=');
                properties.put(pair.substring(0, middle), pair.substring(middle + 1));
            }
        }
        return new LogConfig(properties);
    }

    /** A clock with a fixed time. */
    static class Fixed implements Time {
        private final long now;

        Fixed(long now) {
            this.now = now;
        }

        public long milliseconds() {
            return now;
        }

        public long nanoseconds() {
            return now * 1_000_000L;
        }

        public long hiResClockMs() {
            return now;
        }

        public void sleep(long ms) { }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) { }

        public <T> T waitForFuture(CompletableFuture<T> future, long deadlineNs)
            throws InterruptedException, ExecutionException {
            return future.get();
        }
    }

    /** Runs tasks without delay immediately, and other tasks never. */
    static class AtOnce implements Scheduler {
        public void startup() { }

        public void shutdown() { }

        public void resizeThreadPool(int size) { }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (delayMs <= 0 && periodMs < 0) {
                task.run();
            }
            return null;
        }
    }
}
