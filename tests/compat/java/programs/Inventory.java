import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConfigEntry.ConfigSource;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.ConfigResource.Type;
import org.apache.kafka.common.header.Header;

/** All data of a cluster of one node as one line of JSON, to be compared across implementations. */
final class Inventory {
    private Inventory() { }

    public static void main(String[] arguments) throws Exception {
        Checks.bootstrap = arguments[0];
        try (Admin admin = Admin.create(Checks.client())) {
            Map<String, Object> found = new TreeMap<>();
            found.put("cluster", Checks.get(admin.describeCluster().clusterId()));
            found.put("configs", configs(admin));
            Map<String, Object> topics = new TreeMap<>();
            for (String name : Checks.get(admin.listTopics().names())) {
                topics.put(name, topic(admin, name));
            }
            found.put("topics", topics);
            found.put("groups", groups(admin));
            System.out.println(new ObjectMapper().disable(SerializationFeature.INDENT_OUTPUT)
                    .writeValueAsString(found));
        }
    }

    private static Map<String, Object> configs(Admin admin) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        List<ConfigResource> resources = new ArrayList<>(List.of(new ConfigResource(Type.BROKER, "")));
        resources.addAll(Checks.get(admin.listConfigResources().all()));
        for (ConfigResource resource : resources) {
            if (resource.type() == Type.BROKER_LOGGER) {
                continue;
            }
            Map<String, String> set = new TreeMap<>();
            for (ConfigEntry entry : Checks.get(admin.describeConfigs(List.of(resource)).all()).get(resource).entries()) {
                if (isDynamic(entry.source())) {
                    set.put(entry.name(), entry.value() + " " + entry.source());
                }
            }
            found.put(resource.type() + " " + resource.name(), set);
        }
        return found;
    }

    private static Map<String, Object> groups(Admin admin) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (GroupListing listed : Checks.get(admin.listGroups().all())) {
            String id = listed.groupId();
            ConsumerGroupDescription group = Checks.get(admin.describeConsumerGroups(List.of(id)).all()).get(id);
            List<String> lines = new ArrayList<>();
            group.members().forEach(each -> lines.add(each.consumerId() + " " + each.groupInstanceId() + " "
                    + each.clientId() + " " + each.host() + " " + each.assignment().topicPartitions()));
            Checks.get(admin.listConsumerGroupOffsets(id).partitionsToOffsetAndMetadata()).forEach((at, offset) ->
                    lines.add(at + " " + offset));
            found.put(id + " " + listed.protocol() + " " + group.groupState() + " " + group.partitionAssignor(),
                    Checks.sorted(lines));
        }
        return found;
    }

    private static boolean isDynamic(ConfigSource source) {
        return source != ConfigSource.DEFAULT_CONFIG && source != ConfigSource.STATIC_BROKER_CONFIG;
    }

    private static Map<String, Object> topic(Admin admin, String name) throws Exception {
        TopicDescription topic = Checks.get(admin.describeTopics(List.of(name)).allTopicNames()).get(name);
        Map<String, Object> found = new TreeMap<>();
        found.put("id", topic.topicId().toString());
        for (TopicPartitionInfo each : topic.partitions()) {
            Map<String, Object> partition = partition(admin, new TopicPartition(name, each.partition()));
            partition.put("replicas", each.replicas().get(0).id() + " " + each.replicas().size() + " " + each.isr().size());
            found.put("partition " + each.partition(), partition);
        }
        return found;
    }

    private static Map<String, Object> partition(Admin admin, TopicPartition at) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        found.put("start", Checks.get(admin.listOffsets(Map.of(at, OffsetSpec.earliest())).all()).get(at).offset());
        found.put("end", Checks.get(admin.listOffsets(Map.of(at, OffsetSpec.latest())).all()).get(at).offset());
        var newest = Checks.get(admin.listOffsets(Map.of(at, OffsetSpec.maxTimestamp())).all()).get(at);
        found.put("newest", newest.offset() + " at " + newest.timestamp());
        List<String> producers = new ArrayList<>();
        Checks.get(admin.describeProducers(List.of(at)).partitionResult(at)).activeProducers().forEach(each ->
                producers.add(each.producerId() + " epoch " + each.producerEpoch() + " sequence " + each.lastSequence()
                        + " at " + each.lastTimestamp()));
        found.put("producers", Checks.sorted(producers));
        List<String> records = new ArrayList<>();
        Traffic.read(at).forEach(record -> records.add(text(record)));
        found.put("records", records);
        return found;
    }

    private static String text(ConsumerRecord<byte[], byte[]> record) {
        StringBuilder text = new StringBuilder().append(record.offset()).append(" epoch ");
        text.append(record.leaderEpoch().orElse(-1)).append(' ').append(record.timestampType()).append(' ');
        text.append(record.timestamp()).append(' ').append(shown(record.key())).append('=');
        text.append(shown(record.value()));
        for (Header header : record.headers()) {
            text.append(' ').append(header.key()).append(':').append(shown(header.value()));
        }
        return text.toString();
    }

    private static String shown(byte[] data) {
        if (data == null) {
            return "null";
        }
        String text = new String(data, StandardCharsets.UTF_8);
        return text.length() <= 60 ? text : text.substring(0, 40) + "… " + text.length() + " " + text.hashCode();
    }
}
