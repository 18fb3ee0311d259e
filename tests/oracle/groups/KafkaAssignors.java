import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/** Apache Kafka's own assignors: one group per line of JSON, one line of JSON back with the assignment. */
public class KafkaAssignors {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader groups = new BufferedReader(new InputStreamReader(System.in));
        for (String line = groups.readLine(); line != null; line = groups.readLine()) {
            System.out.println(JSON.writeValueAsString(assign(JSON.readTree(line))));
        }
    }

    static ObjectNode assign(JsonNode group) {
        Map<Uuid, Integer> counts = new HashMap<>();
        group.get("topics").fields().forEachRemaining(each -> counts.put(topic(each.getKey()), each.getValue().asInt()));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        for (JsonNode member : group.get("members")) {
            String id = member.get("id").asText();
            Set<Uuid> topics = new HashSet<>();
            member.get("topics").forEach(each -> topics.add(topic(each.asText())));
            subscriptions.add(topics);
            Map<Uuid, Set<Integer>> current = new HashMap<>();
            member.get("current").fields().forEachRemaining(each -> {
                Set<Integer> partitions = new HashSet<>();
                each.getValue().forEach(index -> {
                    partitions.add(index.asInt());
                    owners.computeIfAbsent(topic(each.getKey()), key -> new HashMap<>()).put(index.asInt(), id);
                });
                current.put(topic(each.getKey()), partitions);
            });
            Optional<String> instance = Optional.ofNullable(member.get("instance").textValue());
            Assignment assignment = new Assignment(Collections.unmodifiableMap(current));
            members.put(id, new MemberSubscriptionAndAssignmentImpl(Optional.empty(), instance, topics, assignment));
        }
        SubscriptionType type = subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        ConsumerGroupPartitionAssignor assignor =
            group.get("assignor").asText().equals("range") ? new RangeAssignor() : new UniformAssignor();
        Map<String, MemberAssignment> assigned =
            assignor.assign(new GroupSpecImpl(members, type, owners), new Topics(counts)).members();
        ObjectNode answer = JSON.createObjectNode();
        assigned.forEach((id, assignment) -> {
            ObjectNode topics = answer.putObject(id);
            assignment.partitions().forEach((topic, partitions) -> {
                ArrayNode indexes = topics.putArray(topic.toString());
                new TreeSet<>(partitions).forEach(indexes::add);
            });
        });
        return answer;
    }

    static Uuid topic(String text) {
        return Uuid.fromString(text);
    }

    record Topics(Map<Uuid, Integer> counts) implements SubscribedTopicDescriber {
        public int numPartitions(Uuid topic) {
            return counts.getOrDefault(topic, -1);
        }

        public Set<String> racksForPartition(Uuid topic, int partition) {
            return Set.of();
        }
    }
}
