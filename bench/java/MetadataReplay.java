import java.io.File;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.loader.MetadataBatchLoader;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Replays a metadata log or snapshot by Kafka's own classes: arguments kind, file. Prints records, the seconds of the
 * first replay (cold, as at the start of a node) and of the fifth (warm), and partitions.
 */
public class MetadataReplay {
    private static MetadataImage image = MetadataImage.EMPTY;

    public static void main(String[] args) throws Exception {
        long records = 0;
        double first = 0;
        double last = 0;
        for (int round = 0; round < 5; round++) {
            image = MetadataImage.EMPTY;
            long began = System.nanoTime();
            records = args[0].equals("log") ? log(new File(args[1])) : snapshot(new File(args[1]));
            last = (System.nanoTime() - began) / 1e9;
            first = round == 0 ? last : first;
        }
        System.out.printf("%d %.4f %.4f %d%n", records, first, last,
                image.topics().topicsById().values().stream().mapToInt(topic -> topic.partitions().size()).sum());
    }

    /** As a broker does: batch by batch, with one image at the end of the log. */
    private static long log(File file) throws Exception {
        MetadataBatchLoader loader = new MetadataBatchLoader(new LogContext(), Time.SYSTEM, (message, cause) -> {
            throw new IllegalStateException(message, cause);
        }, (delta, updated, manifest) -> image = updated, (type, key) -> true);
        loader.resetToImage(image);
        long count = 0;
        try (FileRecords records = FileRecords.open(file, false)) {
            for (RecordBatch batch : records.batches()) {
                if (!batch.isControlBatch()) {
                    List<ApiMessageAndVersion> messages = messages(batch);
                    count += messages.size();
                    loader.loadBatch(Batch.data(batch.baseOffset(), batch.partitionLeaderEpoch(),
                            batch.maxTimestamp(), batch.sizeInBytes(), messages), LeaderAndEpoch.UNKNOWN);
                }
            }
        }
        loader.maybeFlushBatches(LeaderAndEpoch.UNKNOWN, true);
        return count;
    }

    private static long snapshot(File file) throws Exception {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
        long count = 0;
        try (FileRecords records = FileRecords.open(file, false)) {
            for (RecordBatch batch : records.batches()) {
                if (!batch.isControlBatch()) {
                    for (ApiMessageAndVersion message : messages(batch)) {
                        delta.replay(message.message());
                        count++;
                    }
                }
            }
        }
        delta.finishSnapshot();
        image = delta.apply(new MetadataProvenance(count, 1, 0, true));
        return count;
    }

    private static List<ApiMessageAndVersion> messages(RecordBatch batch) {
        batch.ensureValid();
        List<ApiMessageAndVersion> messages = new ArrayList<>();
        for (Record record : batch) {
            ByteBuffer value = record.value();
            messages.add(MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(value), value.remaining()));
        }
        return messages;
    }
}
