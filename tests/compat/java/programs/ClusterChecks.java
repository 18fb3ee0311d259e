import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.ReplicaInfo;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;

final class ClusterChecks {
    private ClusterChecks() { }

    static void all() {
        Checks.check("describe the cluster", () -> {
            DescribeClusterResult found = Checks.admin.describeCluster(
                    new DescribeClusterOptions().includeAuthorizedOperations(true).includeFencedBrokers(true));
            Node node = Checks.get(found.nodes()).iterator().next();
            return Checks.get(found.nodes()).size() + " " + node.id() + " "
                    + Checks.bootstrap.equals(node.host() + ":" + node.port()) + " " + node.rack() + " fenced "
                    + node.isFenced() + " controller " + Checks.get(found.controller()).id() + " "
                    + Checks.get(found.clusterId()).length() + " "
                    + Checks.sorted(Checks.get(found.authorizedOperations()));
        });
        Checks.check("describe the log directories", () -> {
            TopicPartition to = Checks.create("weighed", 2);
            Traffic.fill(to, 100, "linger.ms", "200", "batch.size", "500000");
            Map<String, LogDirDescription> found =
                    Checks.get(Checks.admin.describeLogDirs(List.of(1)).allDescriptions()).get(1);
            StringBuilder text = new StringBuilder(found.size() + " ");
            for (LogDirDescription each : found.values()) {
                text.append(each.error()).append(' ').append(each.isCordoned()).append(' ');
                text.append(each.totalBytes().orElse(-1) > 0).append(' ').append(each.usableBytes().orElse(-1) > 0);
                for (int partition = 0; partition < 2; partition++) {
                    ReplicaInfo replica = each.replicaInfos().get(new TopicPartition("weighed", partition));
                    text.append(' ').append(replica);
                }
            }
            return text;
        });
        Checks.check("describe the metadata quorum", () -> {
            QuorumInfo found = Checks.get(Checks.admin.describeMetadataQuorum().quorumInfo());
            QuorumInfo.ReplicaState voter = found.voters().get(0);
            return found.leaderId() + " " + (found.leaderEpoch() > 0) + " " + (found.highWatermark() > 0) + " "
                    + found.voters().size() + " voter " + voter.replicaId() + " "
                    + (voter.logEndOffset() >= found.highWatermark()) + " "
                    + voter.lastFetchTimestamp().isPresent() + " " + voter.lastCaughtUpTimestamp().isPresent() + " "
                    + found.observers() + " nodes " + found.nodes().keySet();
        });
        Checks.check("features, finalized", () -> {
            FeatureMetadata found = Checks.get(Checks.admin.describeFeatures().featureMetadata());
            return new TreeMap<>(found.finalizedFeatures()) + " " + (found.finalizedFeaturesEpoch().orElse(-1L) > 0);
        });
        Checks.check("features, supported", () ->
                new TreeMap<>(Checks.get(Checks.admin.describeFeatures().featureMetadata()).supportedFeatures()));
        update("a level that is too high", "metadata.version", (short) 99, UpgradeType.UPGRADE);
        update("an unknown feature", "no.such.feature", (short) 1, UpgradeType.UPGRADE);
        update("a downgrade sent as an upgrade", "metadata.version", (short) 20, UpgradeType.UPGRADE);
        update("the current level", "metadata.version", (short) 30, UpgradeType.UPGRADE);
        Checks.check("update a feature, validated only", () ->
                Checks.outcome(Checks.admin.updateFeatures(
                        Map.of("kraft.version", new FeatureUpdate((short) 1, UpgradeType.UPGRADE)),
                        new UpdateFeaturesOptions().validateOnly(true)).all()));
        Checks.check("unregister an unknown broker", () ->
                Checks.outcome(Checks.admin.unregisterBroker(99).all()));
    }

    private static void update(String what, String feature, short level, UpgradeType type) {
        Checks.check("update a feature: " + what, () -> Checks.outcome(
                Checks.admin.updateFeatures(Map.of(feature, new FeatureUpdate(level, type)),
                        new UpdateFeaturesOptions()).all()));
    }
}
