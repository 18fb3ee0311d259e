import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.DeleteRecordsOptions;
import org.apache.kafka.clients.admin.DeletedRecords;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;

final class OffsetChecks {
    /** The client retries an unknown partition until its timeout. */
    private static final ListOffsetsOptions BRIEF = new ListOffsetsOptions().timeoutMs(1_000);

    private OffsetChecks() { }

    static long end(TopicPartition of) throws Exception {
        return Checks.get(Checks.admin.listOffsets(Map.of(of, OffsetSpec.latest())).all()).get(of).offset();
    }

    static void all() {
        Checks.check("list offsets, every kind", OffsetChecks::everyKind);
        Checks.check("list offsets of an empty partition", () -> kinds(Checks.create("offsets-of-nothing")));
        Checks.check("list offsets of an unknown partition", () ->
                Checks.outcome(Checks.admin.listOffsets(
                        Map.of(new TopicPartition("described", 99), OffsetSpec.latest()), BRIEF).all()));
        Checks.check("delete records", () -> {
            TopicPartition from = Checks.create("trimmed");
            Traffic.fill(from, 100);
            return deleted(from, 10) + " " + deleted(from, 5) + " " + Traffic.summary(Traffic.read(from)) + " "
                    + deleted(from, -1) + " " + Traffic.summary(Traffic.read(from)) + " " + kinds(from);
        });
        Checks.check("delete records rejected: past the end", () -> deleted(new TopicPartition("trimmed", 0), 101));
        Checks.check("delete records rejected: an unknown partition", () ->
                deleted(new TopicPartition("trimmed", 9), 1));
        Checks.check("delete records rejected: a compacted topic", () -> {
            TopicPartition from = Checks.create("trimmed-compacted", "cleanup.policy", "compact");
            Traffic.fill(from, 10);
            return deleted(from, 5);
        });
        Checks.check("describe producers", () -> {
            TopicPartition to = Checks.create("produced");
            Traffic.fill(to, 10, "enable.idempotence", "false");
            try (KafkaProducer<byte[], byte[]> producer = Traffic.producer()) {
                Traffic.send(producer, Traffic.records(to, 100));
                Traffic.send(producer, Traffic.records(to, 10));
                StringBuilder text = new StringBuilder();
                for (ProducerState each : Checks.get(Checks.admin.describeProducers(List.of(to)).partitionResult(to))
                        .activeProducers()) {
                    long age = System.currentTimeMillis() - each.lastTimestamp();
                    text.append(each.producerId() >= 0).append(' ').append(each.producerEpoch()).append(' ');
                    text.append(each.lastSequence()).append(' ').append(each.coordinatorEpoch()).append(' ');
                    text.append(each.currentTransactionStartOffset()).append(' ').append(age > 0 && age < 100_000);
                }
                return text;
            }
        });
    }

    private static Object everyKind() throws Exception {
        TopicPartition to = Checks.create("offsets");
        try (KafkaProducer<byte[], byte[]> producer = Traffic.producer()) {
            for (long since : new long[] {100, 300, 900, 500, 900, 700}) {
                Traffic.send(producer, List.of(Traffic.record(to, since, "k", "v")));
            }
        }
        return kinds(to);
    }

    private static Map<String, String> kinds(TopicPartition of) {
        Map<String, OffsetSpec> specs = new LinkedHashMap<>();
        specs.put("earliest", OffsetSpec.earliest());
        specs.put("latest", OffsetSpec.latest());
        specs.put("max", OffsetSpec.maxTimestamp());
        specs.put("local", OffsetSpec.earliestLocal());
        specs.put("tiered", OffsetSpec.latestTiered());
        specs.put("pending", OffsetSpec.earliestPendingUpload());
        specs.put("at 0", OffsetSpec.forTimestamp(Checks.BEGAN_MS));
        specs.put("at 301", OffsetSpec.forTimestamp(Checks.BEGAN_MS + 301));
        specs.put("at 901", OffsetSpec.forTimestamp(Checks.BEGAN_MS + 901));
        Map<String, String> found = new LinkedHashMap<>();
        specs.forEach((name, spec) -> found.put(name, one(of, spec, IsolationLevel.READ_UNCOMMITTED)));
        found.put("stable", one(of, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED));
        return found;
    }

    private static String one(TopicPartition of, OffsetSpec spec, IsolationLevel isolation) {
        try {
            ListOffsetsResultInfo found = Checks.get(
                    Checks.admin.listOffsets(Map.of(of, spec), new ListOffsetsOptions(isolation)).all()).get(of);
            String at = found.timestamp() < 0 ? "" : " at " + (found.timestamp() - Checks.BEGAN_MS);
            return found.offset() + at + found.leaderEpoch().map(epoch -> " of epoch " + epoch).orElse("");
        } catch (Exception thrown) {
            return Checks.named(thrown);
        }
    }

    private static String deleted(TopicPartition from, long before) {
        // The client retries an unknown partition until its timeout.
        DeleteRecordsOptions brief = new DeleteRecordsOptions().timeoutMs(from.partition() == 9 ? 1_000 : 60_000);
        try {
            DeletedRecords done = Checks.get(Checks.admin.deleteRecords(
                    Map.of(from, RecordsToDelete.beforeOffset(before)), brief).lowWatermarks().get(from));
            return String.valueOf(done.lowWatermark());
        } catch (Exception thrown) {
            return Checks.named(thrown);
        }
    }
}
