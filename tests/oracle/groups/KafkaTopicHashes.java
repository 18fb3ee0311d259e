import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;

/** Apache Kafka's hash of the topics of a group: one list of topics per line of JSON, one number back. */
public class KafkaTopicHashes {
    public static void main(String[] arguments) throws Exception {
        BufferedReader groups = new BufferedReader(new InputStreamReader(System.in));
        for (String line = groups.readLine(); line != null; line = groups.readLine()) {
            Map<String, Long> hashes = new HashMap<>();
            for (JsonNode topic : new ObjectMapper().readTree(line)) {
                String name = topic.get("name").asText();
                hashes.put(name, Utils.computeTopicHash(name, new OneTopic(topic)));
            }
            System.out.println(Utils.computeGroupHash(hashes));
        }
    }

    record OneTopic(JsonNode topic) implements CoordinatorMetadataImage, CoordinatorMetadataImage.TopicMetadata {
        public Set<Uuid> topicIds() {
            return Set.of(id());
        }

        public Set<String> topicNames() {
            return Set.of(name());
        }

        public Optional<TopicMetadata> topicMetadata(String name) {
            return Optional.of(this);
        }

        public Optional<TopicMetadata> topicMetadata(Uuid id) {
            return Optional.of(this);
        }

        public CoordinatorMetadataDelta emptyDelta() {
            throw new UnsupportedOperationException();
        }

        public long version() {
            return 1;
        }

        public boolean isEmpty() {
            return false;
        }

        public String name() {
            return topic.get("name").asText();
        }

        public Uuid id() {
            return Uuid.fromString(topic.get("id").asText());
        }

        public int partitionCount() {
            return topic.get("partitions").asInt();
        }

        public List<String> partitionRacks(int partition) {
            List<String> racks = new ArrayList<>();
            JsonNode named = topic.get("racks").get(partition);
            if (named != null) named.forEach(rack -> racks.add(rack.asText()));
            return racks;
        }
    }
}
