package org.apache.kafka.controller;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData;
import org.apache.kafka.common.message.AlterPartitionRequestData;
import org.apache.kafka.common.message.AssignReplicasToDirsRequestData;
import org.apache.kafka.common.message.ElectLeadersRequestData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.metadata.BrokerRegistrationChangeRecord;
import org.apache.kafka.common.metadata.ClearElrRecord;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Runs Apache Kafka's ReplicationControlManager: reads one event per line of JSON and prints one line of JSON with its
 * records and its response. It is in Kafka's package, because the class is package-private.
 */
public class KafkaReplication {
    static final ObjectMapper JSON = new ObjectMapper();
    static final long TOPIC = 1000;

    FeatureControlManager features;
    ClusterControlManager cluster;
    ConfigurationControlManager configs;
    ReplicationControlManager replication;
    List<ApiMessageAndVersion> records;

    public static void main(String[] arguments) throws Exception {
        BufferedReader events = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        KafkaReplication story = null;
        for (String line = events.readLine(); line != null; line = events.readLine()) {
            JsonNode event = JSON.readTree(line);
            if (event.get("event").asText().equals("begin")) {
                story = new KafkaReplication(event);
                answers.append("{}\n");
            } else {
                answers.append(story.play(event)).append('\n');
            }
        }
        System.out.print(answers);
        System.exit(0);
    }

    KafkaReplication(JsonNode beginning) {
        SnapshotRegistry registry = new SnapshotRegistry(new org.apache.kafka.common.utils.LogContext());
        features = new FeatureControlManager.Builder()
            .setSnapshotRegistry(registry)
            .setQuorumFeatures(new QuorumFeatures(0, QuorumFeatures.defaultSupportedFeatureMap(true), List.of(0)))
            .build();
        features.replay(new FeatureLevelRecord().setName("metadata.version")
            .setFeatureLevel((short) beginning.get("metadata_version").asInt()));
        if (beginning.get("elr").asBoolean()) {
            features.replay(new FeatureLevelRecord().setName("eligible.leader.replicas.version").setFeatureLevel((short) 1));
        }
        cluster = new ClusterControlManager.Builder()
            .setTime(Time.SYSTEM)
            .setSnapshotRegistry(registry)
            .setReplicaPlacer(new StripedReplicaPlacer(new Random(0)))
            .setFeatureControlManager(features)
            .setBrokerShutdownHandler((broker, clean, records) -> { })
            .build();
        configs = new ConfigurationControlManager.Builder()
            .setSnapshotRegistry(registry)
            .setFeatureControl(features)
            .setKafkaConfigSchema(kafka.server.KafkaRaftServer.configSchema())
            .setStaticConfig(Map.of())
            .build();
        replication = new ReplicationControlManager.Builder()
            .setSnapshotRegistry(registry)
            .setConfigurationControl(configs)
            .setClusterControl(cluster)
            .setFeatureControl(features)
            .build();
        for (JsonNode broker : beginning.get("brokers")) {
            register(broker);
        }
        for (JsonNode topic : beginning.get("topics")) {
            Uuid id = topicId(topic);
            replication.replay(new TopicRecord().setName(topic.get("name").asText()).setTopicId(id));
            int index = 0;
            for (JsonNode replicas : topic.get("partitions")) {
                List<Integer> assigned = list(replicas);
                List<Uuid> directories = new ArrayList<>();
                assigned.forEach(replica -> directories.add(replication.clusterDescriber.defaultDir(replica)));
                replication.replay(new PartitionRecord()
                    .setTopicId(id).setPartitionId(index++).setReplicas(assigned).setIsr(assigned)
                    .setRemovingReplicas(List.of()).setAddingReplicas(List.of())
                    .setLeader(assigned.get(0)).setLeaderEpoch(0).setPartitionEpoch(0).setDirectories(directories));
            }
        }
    }

    void register(JsonNode broker) {
        cluster.replay(new RegisterBrokerRecord()
            .setBrokerId(broker.get("id").asInt())
            .setBrokerEpoch(broker.get("epoch").asLong())
            .setIncarnationId(new Uuid(9, broker.get("epoch").asLong()))
            .setFenced(broker.get("fenced").asBoolean())
            .setLogDirs(uuids(broker.get("directories"))), broker.get("epoch").asLong());
    }

    String play(JsonNode event) throws Exception {
        records = new ArrayList<>();
        ObjectNode told = JSON.createObjectNode();
        told.set("response", decide(event));
        ArrayNode written = told.putArray("records");
        for (ApiMessageAndVersion record : records) {
            written.add(fields(record.message()));
            replay(record.message());
        }
        if (event.get("event").asText().equals("restart")) {
            register(event.get("broker"));
        }
        return JSON.writeValueAsString(told);
    }

    JsonNode decide(JsonNode event) {
        int id = event.path("id").asInt();
        switch (event.get("event").asText()) {
            case "fence":
                replication.handleBrokerFenced(id, records);
                return null;
            case "unfence":
                replication.handleBrokerUnfenced(id, cluster.registration(id).epoch(), records);
                return null;
            case "shut down":
                replication.handleBrokerInControlledShutdown(id, cluster.registration(id).epoch(), records);
                return null;
            case "restart":
                replication.handleBrokerShutdown(event.get("broker").get("id").asInt(), event.get("clean").asBoolean(), records);
                return null;
            case "directories fail":
                replication.handleDirectoriesOffline(
                    id, cluster.registration(id).epoch(), uuids(event.get("directories")), records);
                return null;
            case "configure":
                configs.replay(new ConfigRecord().setResourceType((byte) 2).setResourceName(event.get("topic").asText())
                    .setName(event.get("key").asText()).setValue(event.get("value").asText()));
                return null;
            case "clear elr":
                replication.replay(new ClearElrRecord().setTopicName(event.get("topic").asText()));
                return null;
            case "balance":
                return taken(replication.maybeBalancePartitionLeaders());
            case "elect unclean":
                return taken(replication.maybeElectUncleanLeaders());
            case "elect":
                return elect(event);
            case "alter partition":
                return alterPartition(event);
            case "reassign":
                return reassign(event);
            case "assign":
                return assign(event);
            default:
                throw new IllegalArgumentException(event.toString());
        }
    }

    <T> T result(ControllerResult<T> result) {
        records.addAll(result.records());
        return result.response();
    }

    JsonNode taken(ControllerResult<Boolean> result) {
        return JSON.valueToTree(result(result));
    }

    JsonNode elect(JsonNode event) {
        ArrayNode answer = JSON.createArrayNode();
        ElectLeadersRequestData request = new ElectLeadersRequestData()
            .setElectionType((byte) event.get("type").asInt()).setTopicPartitions(null);
        result(replication.electLeaders(request)).replicaElectionResults().forEach(topic ->
            topic.partitionResult().forEach(partition ->
                answer.addArray().add(topic.topic()).add(partition.partitionId()).add(partition.errorCode())));
        return answer;
    }

    JsonNode alterPartition(JsonNode event) {
        AlterPartitionRequestData.PartitionData data = new AlterPartitionRequestData.PartitionData()
            .setPartitionIndex(event.get("partition").asInt())
            .setLeaderEpoch(event.get("leader_epoch").asInt())
            .setPartitionEpoch(event.get("partition_epoch").asInt())
            .setLeaderRecoveryState((byte) event.get("recovery_state").asInt());
        for (JsonNode member : event.get("isr")) {
            data.newIsrWithEpochs().add(new AlterPartitionRequestData.BrokerState()
                .setBrokerId(member.get(0).asInt()).setBrokerEpoch(member.get(1).asLong()));
        }
        AlterPartitionRequestData.TopicData topic = new AlterPartitionRequestData.TopicData()
            .setTopicId(topicId(event)).setPartitions(List.of(data));
        AlterPartitionRequestData request = new AlterPartitionRequestData()
            .setBrokerId(id(event)).setBrokerEpoch(cluster.registration(id(event)).epoch()).setTopics(List.of(topic));
        ControllerRequestContext context = new ControllerRequestContext(
            new RequestHeaderData().setRequestApiVersion((short) 3), KafkaPrincipal.ANONYMOUS, OptionalLong.empty());
        var answer = result(replication.alterPartition(context, request)).topics().get(0).partitions().get(0);
        return JSON.createArrayNode().add(answer.errorCode()).add(answer.leaderId()).add(answer.leaderEpoch())
            .add(JSON.valueToTree(answer.isr())).add(answer.leaderRecoveryState()).add(answer.partitionEpoch());
    }

    JsonNode reassign(JsonNode event) {
        AlterPartitionReassignmentsRequestData request = new AlterPartitionReassignmentsRequestData()
            .setAllowReplicationFactorChange(event.get("allow_factor_change").asBoolean())
            .setTopics(List.of(new AlterPartitionReassignmentsRequestData.ReassignableTopic()
                .setName(event.get("topic").asText())
                .setPartitions(List.of(new AlterPartitionReassignmentsRequestData.ReassignablePartition()
                    .setPartitionIndex(event.get("partition").asInt())
                    .setReplicas(event.get("replicas").isNull() ? null : list(event.get("replicas")))))));
        return JSON.valueToTree(
            result(replication.alterPartitionReassignments(request)).responses().get(0).partitions().get(0).errorCode());
    }

    JsonNode assign(JsonNode event) {
        AssignReplicasToDirsRequestData request = new AssignReplicasToDirsRequestData()
            .setBrokerId(id(event)).setBrokerEpoch(cluster.registration(id(event)).epoch())
            .setDirectories(List.of(new AssignReplicasToDirsRequestData.DirectoryData()
                .setId(Uuid.fromString(event.get("directory").asText()))
                .setTopics(List.of(new AssignReplicasToDirsRequestData.TopicData()
                    .setTopicId(topicId(event))
                    .setPartitions(List.of(new AssignReplicasToDirsRequestData.PartitionData()
                        .setPartitionIndex(event.get("partition").asInt())))))));
        return JSON.valueToTree(result(replication.handleAssignReplicasToDirs(request))
            .directories().get(0).topics().get(0).partitions().get(0).errorCode());
    }

    void replay(ApiMessage record) {
        if (record instanceof PartitionChangeRecord change) {
            replication.replay(change);
        } else {
            cluster.replay((BrokerRegistrationChangeRecord) record);
        }
    }

    JsonNode fields(ApiMessage record) {
        ObjectNode fields = JSON.createObjectNode();
        if (record instanceof BrokerRegistrationChangeRecord change) {
            fields.put("broker", change.brokerId());
            fields.put("fenced", change.fenced());
            fields.put("in_controlled_shutdown", change.inControlledShutdown());
            ArrayNode directories = fields.putArray("log_dirs");
            change.logDirs().forEach(directory -> directories.add(directory.toString()));
            return fields;
        }
        PartitionChangeRecord change = (PartitionChangeRecord) record;
        fields.put("topic", change.topicId().getLeastSignificantBits() - TOPIC);
        fields.put("partition", change.partitionId());
        fields.put("leader", change.leader());
        fields.put("leader_recovery_state", change.leaderRecoveryState());
        fields.set("isr", JSON.valueToTree(change.isr()));
        fields.set("replicas", JSON.valueToTree(change.replicas()));
        fields.set("adding_replicas", JSON.valueToTree(change.addingReplicas()));
        fields.set("removing_replicas", JSON.valueToTree(change.removingReplicas()));
        fields.set("eligible_leader_replicas", JSON.valueToTree(change.eligibleLeaderReplicas()));
        fields.set("last_known_elr", JSON.valueToTree(change.lastKnownElr()));
        if (change.directories() == null) {
            fields.putNull("directories");
        } else {
            ArrayNode directories = fields.putArray("directories");
            change.directories().forEach(directory -> directories.add(directory.toString()));
        }
        return fields;
    }

    static int id(JsonNode event) {
        return event.get("id").asInt();
    }

    static Uuid topicId(JsonNode topic) {
        return new Uuid(1, TOPIC + topic.get("number").asInt());
    }

    static List<Integer> list(JsonNode numbers) {
        List<Integer> found = new ArrayList<>();
        numbers.forEach(number -> found.add(number.asInt()));
        return found;
    }

    static List<Uuid> uuids(JsonNode texts) {
        List<Uuid> found = new ArrayList<>();
        texts.forEach(text -> found.add(Uuid.fromString(text.asText())));
        return found;
    }
}
