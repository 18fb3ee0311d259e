import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Optional;
import java.util.Properties;
import java.util.StringJoiner;
import java.util.TreeMap;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Opens a partition directory with Apache Kafka's log, to describe it or to append to it.
 *
 *   describe DIRECTORY CONFIG clean|crashed RECOVERY_POINT TIMESTAMP,…
 *   write DIRECTORY CONFIG clean|crashed RECOVERY_POINT
 *       on standard input: "append LEADER_EPOCH ORIGIN HEX", "roll", then "close" or "kill"
 */
public class KafkaFiles {
    public static void main(String[] arguments) throws Exception {
        UnifiedLog log = open(arguments);
        if (arguments[0].equals("describe")) {
            describe(log, arguments[5]);
            log.close();
        } else {
            write(log);
        }
        System.out.flush();
        // Without shutdown hooks, which would close the log of a simulated crash.
        Runtime.getRuntime().halt(0);
    }

    static UnifiedLog open(String[] arguments) throws Exception {
        Properties properties = new Properties();
        for (String pair : arguments[2].split(";")) {
            int middle = pair.indexOf('=');
            properties.put(pair.substring(0, middle), pair.substring(middle + 1));
        }
        KafkaScheduler scheduler = new KafkaScheduler(1, true, "kafka-files-");
        scheduler.startup();
        File directory = new File(arguments[1]);
        directory.mkdirs();
        return UnifiedLog.create(
            directory, new LogConfig(properties), 0, Long.parseLong(arguments[4]), scheduler, new BrokerTopicStats(),
            Time.SYSTEM, Integer.MAX_VALUE, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), Integer.MAX_VALUE,
            new LogDirFailureChannel(2), arguments[3].equals("clean"), Optional.empty());
    }

    static void describe(UnifiedLog log, String timestamps) throws Exception {
        log.updateHighWatermark(log.logEndOffset());
        say("log", log.logStartOffset() + " " + log.logEndOffset() + " " + log.lastStableOffset());
        StringJoiner segments = new StringJoiner(" ");
        log.logSegments().forEach(segment -> segments.add(segment.baseOffset() + ":" + segment.size()));
        say("segments", segments.toString());
        StringJoiner epochs = new StringJoiner(" ");
        log.leaderEpochCache().epochEntries().forEach(entry -> epochs.add(entry.epoch() + ":" + entry.startOffset()));
        say("epochs", epochs.toString());
        StringJoiner producers = new StringJoiner(" ");
        new TreeMap<>(log.producerStateManager().activeProducers()).forEach((id, entry) -> producers.add(
            id + ":" + entry.producerEpoch() + ":"
            + log.activeProducersWithLastSequence().get(id) + ":" + entry.lastDataOffset() + ":"
            + entry.currentTxnFirstOffset().orElse(-1L)));
        say("producers", producers.toString());
        StringJoiner aborted = new StringJoiner(" ");
        log.collectAbortedTransactions(0, log.logEndOffset()).forEach(entry -> aborted.add(
            entry.producerId() + ":" + entry.firstOffset() + ":" + entry.lastOffset() + ":" + entry.lastStableOffset()));
        say("aborted", aborted.toString());
        StringJoiner found = new StringJoiner(" ");
        for (String timestamp : timestamps.split(",")) {
            found.add(log.fetchOffsetByTimestamp(Long.parseLong(timestamp), Optional.empty())
                .timestampAndOffsetOpt().map(hit -> String.valueOf(hit.offset)).orElse("-"));
        }
        say("timestamps", found.toString());
        StringJoiner batches = new StringJoiner(" ");
        for (long offset = log.logStartOffset(); offset < log.logEndOffset();) {
            for (RecordBatch batch : log.read(offset, 1 << 20, FetchIsolation.LOG_END, true).records.batches()) {
                batch.ensureValid();
                batches.add(batch.baseOffset() + ":" + batch.lastOffset() + ":" + batch.partitionLeaderEpoch());
                offset = batch.nextOffset();
            }
        }
        say("batches", batches.toString());
    }

    static void write(UnifiedLog log) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("append")) {
                MemoryRecords records = MemoryRecords.readableRecords(
                    ByteBuffer.wrap(HexFormat.of().parseHex(words[3])));
                log.appendAsLeader(records, Integer.parseInt(words[1]), AppendOrigin.valueOf(words[2]),
                    RequestLocal.noCaching(), VerificationGuard.SENTINEL, (short) 0);
                log.updateHighWatermark(log.logEndOffset());
            } else if (words[0].equals("roll")) {
                log.roll();
            } else if (words[0].equals("close")) {
                log.close();
            }
        }
        say("end", String.valueOf(log.logEndOffset()));
    }

    static void say(String key, String value) {
        System.out.println("ANSWER " + key + " " + value);
    }
}
