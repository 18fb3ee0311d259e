import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.metadata.placement.ClusterDescriber;
import org.apache.kafka.metadata.placement.PartitionAssignment;
import org.apache.kafka.metadata.placement.PlacementSpec;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.metadata.placement.UsableBroker;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Runs parts of Apache Kafka's controller: reads one case per line of JSON and prints one line of JSON.
 *
 *   change    a partition and a requested change; prints the fields of the PartitionChangeRecord, or null
 *   place     brokers, partitions, a replication factor and a constant random number; prints the replicas
 */
public class KafkaController {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            JsonNode question = JSON.readTree(line);
            answers.append(arguments[0].equals("change") ? change(question) : place(question)).append('\n');
        }
        System.out.print(answers);
    }

    static String change(JsonNode question) throws Exception {
        JsonNode has = question.get("partition");
        JsonNode wants = question.get("target");
        PartitionRegistration partition = new PartitionRegistration.Builder()
            .setReplicas(array(has.get("replicas")))
            .setDirectories(uuids(has.get("directories")).toArray(new Uuid[0]))
            .setIsr(array(has.get("isr")))
            .setElr(array(has.get("elr")))
            .setLastKnownElr(array(has.get("last_known_elr")))
            .setAddingReplicas(array(has.get("adding")))
            .setRemovingReplicas(array(has.get("removing")))
            .setLeader(has.get("leader").asInt())
            .setLeaderRecoveryState(LeaderRecoveryState.of((byte) has.get("leader_recovery_state").asInt()))
            .setLeaderEpoch(5)
            .setPartitionEpoch(9)
            .build();
        List<Integer> live = list(question.get("live"));
        PartitionChangeBuilder builder = new PartitionChangeBuilder(
            partition,
            new Uuid(1, 100),
            0,
            live::contains,
            MetadataVersion.fromFeatureLevel((short) question.get("metadata_version").asInt()),
            question.get("min_isr").asInt(),
            question.get("elr_enabled").asBoolean());
        builder.setElection(PartitionChangeBuilder.Election.valueOf(question.get("election").asText()));
        builder.setDefaultDirProvider(broker -> new Uuid(3, 1000 + broker));
        if (wants.has("isr")) builder.setTargetIsr(list(wants.get("isr")));
        if (wants.has("replicas")) builder.setTargetReplicas(list(wants.get("replicas")));
        if (wants.has("adding")) builder.setTargetAdding(list(wants.get("adding")));
        if (wants.has("removing")) builder.setTargetRemoving(list(wants.get("removing")));
        if (wants.has("unclean_shutdown")) builder.setUncleanShutdownReplicas(list(wants.get("unclean_shutdown")));
        if (wants.has("recovery_state")) {
            builder.setTargetLeaderRecoveryState(LeaderRecoveryState.of((byte) wants.get("recovery_state").asInt()));
        }
        if (wants.has("directory")) {
            builder.setDirectory(wants.get("directory").get(0).asInt(), uuid(wants.get("directory").get(1)));
        }
        Optional<ApiMessageAndVersion> built = builder.build();
        return built.isEmpty() ? "null" : JSON.writeValueAsString(fields((PartitionChangeRecord) built.get().message()));
    }

    static ObjectNode fields(PartitionChangeRecord record) {
        ObjectNode fields = JSON.createObjectNode();
        fields.put("leader", record.leader());
        fields.put("leader_recovery_state", record.leaderRecoveryState());
        fields.set("isr", JSON.valueToTree(record.isr()));
        fields.set("replicas", JSON.valueToTree(record.replicas()));
        fields.set("adding_replicas", JSON.valueToTree(record.addingReplicas()));
        fields.set("removing_replicas", JSON.valueToTree(record.removingReplicas()));
        fields.set("eligible_leader_replicas", JSON.valueToTree(record.eligibleLeaderReplicas()));
        fields.set("last_known_elr", JSON.valueToTree(record.lastKnownElr()));
        if (record.directories() == null) {
            fields.putNull("directories");
        } else {
            ArrayNode directories = fields.putArray("directories");
            record.directories().forEach(directory -> directories.add(directory.toString()));
        }
        return fields;
    }

    static String place(JsonNode question) throws Exception {
        int stubborn = question.get("random").asInt();
        Random random = new Random() {
            @Override
            public int nextInt(int bound) {
                return stubborn % bound;
            }
        };
        List<UsableBroker> brokers = new ArrayList<>();
        for (JsonNode broker : question.get("brokers")) {
            Optional<String> rack = Optional.ofNullable(broker.get(1).isNull() ? null : broker.get(1).asText());
            brokers.add(new UsableBroker(broker.get(0).asInt(), rack, broker.get(2).asBoolean()));
        }
        ClusterDescriber cluster = new ClusterDescriber() {
            @Override
            public Iterator<UsableBroker> usableBrokers() {
                return brokers.iterator();
            }

            @Override
            public Uuid defaultDir(int brokerId) {
                return Uuid.ZERO_UUID;
            }
        };
        PlacementSpec spec = new PlacementSpec(
            0, question.get("partitions").asInt(), (short) question.get("factor").asInt());
        List<List<Integer>> placed = new ArrayList<>();
        for (PartitionAssignment assignment : new StripedReplicaPlacer(random).place(spec, cluster).assignments()) {
            placed.add(assignment.replicas());
        }
        return JSON.writeValueAsString(placed);
    }

    static List<Integer> list(JsonNode numbers) {
        List<Integer> found = new ArrayList<>();
        numbers.forEach(number -> found.add(number.asInt()));
        return found;
    }

    static int[] array(JsonNode numbers) {
        return list(numbers).stream().mapToInt(Integer::intValue).toArray();
    }

    static List<Uuid> uuids(JsonNode texts) {
        List<Uuid> found = new ArrayList<>();
        texts.forEach(text -> found.add(uuid(text)));
        return found;
    }

    static Uuid uuid(JsonNode text) {
        return Uuid.fromString(text.asText());
    }
}
