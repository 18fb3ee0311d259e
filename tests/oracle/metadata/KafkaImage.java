import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.DefaultRecord;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.loader.MetadataBatchLoader;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.fault.FaultHandler;

/**
 * Apache Kafka's metadata image.
 *
 *   replay LOG COPY EVERY   reads a metadata log, encodes every batch again into COPY, and replays it as a broker does.
 *                           After every EVERY batches, and at the end, prints the records of a snapshot:
 *                           SNAPSHOT offset, then RECORD hex for each record
 *   levels                  prints for each metadata.version the lower versions that it can be downgraded to
 */
public class KafkaImage {
    static MetadataImage image = MetadataImage.EMPTY;

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("levels")) {
            levels();
        } else {
            replay(Path.of(arguments[1]), Path.of(arguments[2]), Integer.parseInt(arguments[3]));
        }
    }

    static void levels() throws Exception {
        var changed = MetadataVersion.class.getDeclaredMethod(
            "checkIfMetadataChanged", MetadataVersion.class, MetadataVersion.class);
        changed.setAccessible(true);
        for (MetadataVersion from : MetadataVersion.VERSIONS) {
            StringBuilder line = new StringBuilder("LEVEL " + from.featureLevel());
            for (MetadataVersion to : MetadataVersion.VERSIONS) {
                if (to.isLessThan(from) && !(boolean) changed.invoke(null, from, to)) {
                    line.append(' ').append(to.featureLevel());
                }
            }
            System.out.println(line);
        }
    }

    static void replay(Path log, Path copy, int every) throws Exception {
        FaultHandler fault = (message, cause) -> {
            throw new IllegalStateException(message, cause);
        };
        MetadataBatchLoader loader = new MetadataBatchLoader(
            new LogContext(), Time.SYSTEM, fault, (delta, updated, manifest) -> image = updated, (type, key) -> true);
        loader.resetToImage(image);
        int count = 0;
        try (FileRecords records = FileRecords.open(log.toFile(), false);
                DataOutputStream output = new DataOutputStream(new FileOutputStream(copy.toFile()))) {
            for (RecordBatch batch : records.batches()) {
                List<ApiMessageAndVersion> messages = batch.isControlBatch() ? List.of() : messagesOf(batch);
                if (batch.isControlBatch()) {
                    ByteBuffer same = ByteBuffer.allocate(batch.sizeInBytes());
                    batch.writeTo(same);
                    output.write(same.array());
                } else {
                    output.write(writtenAnew(batch, messages));
                    load(loader, batch, messages);
                }
                if (++count % every == 0) {
                    snapshot(batch.nextOffset());
                }
            }
        }
        snapshot(-1);
    }

    static void load(MetadataBatchLoader loader, RecordBatch batch, List<ApiMessageAndVersion> messages) {
        LeaderAndEpoch leader = LeaderAndEpoch.UNKNOWN;
        loader.loadBatch(Batch.data(
            batch.baseOffset(), batch.partitionLeaderEpoch(), batch.maxTimestamp(), batch.sizeInBytes(), messages), leader);
        loader.maybeFlushBatches(leader, true);
    }

    static List<ApiMessageAndVersion> messagesOf(RecordBatch batch) {
        List<ApiMessageAndVersion> messages = new ArrayList<>();
        for (Record record : batch) {
            ByteBuffer value = record.value();
            messages.add(MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(value), value.remaining()));
        }
        return messages;
    }

    static byte[] writtenAnew(RecordBatch batch, List<ApiMessageAndVersion> messages) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(batch.sizeInBytes() + 1024), RecordBatch.CURRENT_MAGIC_VALUE, Compression.NONE,
            TimestampType.CREATE_TIME, batch.baseOffset(), batch.maxTimestamp(), RecordBatch.NO_PRODUCER_ID,
            RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE, false, false, batch.partitionLeaderEpoch());
        for (ApiMessageAndVersion message : messages) {
            builder.append(batch.maxTimestamp(), null, bytesOf(message));
        }
        ByteBuffer buffer = builder.build().buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    static byte[] bytesOf(ApiMessageAndVersion message) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(message, cache));
        MetadataRecordSerde.INSTANCE.write(message, cache, new ByteBufferAccessor(buffer));
        return buffer.array();
    }

    static void snapshot(long offset) {
        RecordListWriter writer = new RecordListWriter();
        image.write(writer, new ImageWriterOptions.Builder(image).build());
        System.out.println("SNAPSHOT " + offset);
        for (ApiMessageAndVersion message : writer.records()) {
            System.out.println("RECORD " + java.util.HexFormat.of().formatHex(bytesOf(message)));
        }
    }
}
