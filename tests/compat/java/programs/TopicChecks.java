import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TopicListing;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;

final class TopicChecks {
    private TopicChecks() { }

    static void all() {
        creations();
        rejections();
        descriptions();
        deletions();
        growths();
    }

    private static void creations() {
        Checks.check("create with the defaults of the cluster", () ->
                created(new NewTopic("by-default", Optional.empty(), Optional.empty())));
        Checks.check("create with configs", () ->
                created(new NewTopic("configured", 2, (short) 1)
                        .configs(Checks.pairs("retention.ms", "1000", "cleanup.policy", "compact,delete"))));
        Checks.check("create with a manual assignment", () ->
                created(new NewTopic("assigned", Map.of(0, List.of(1), 1, List.of(1)))));
        Checks.check("validate only", () -> {
            NewTopic topic = new NewTopic("validated", 5, (short) 1);
            CreateTopicsResult result =
                    Checks.admin.createTopics(List.of(topic), new CreateTopicsOptions().validateOnly(true));
            Checks.get(result.all());
            return Checks.get(result.numPartitions("validated")) + " " + Checks.outcome(
                    Checks.admin.describeTopics(List.of("validated")).allTopicNames());
        });
        Checks.check("a topic of many partitions", () -> {
            Checks.create("many", 300);
            return Checks.get(Checks.admin.describeTopics(List.of("many")).allTopicNames()).get("many")
                    .partitions().size();
        });
    }

    private static void rejections() {
        Map<String, NewTopic> rejected = new TreeMap<>();
        rejected.put("an invalid name", new NewTopic("no/slash", 1, (short) 1));
        rejected.put("an empty name", new NewTopic("", 1, (short) 1));
        rejected.put("two dots", new NewTopic("..", 1, (short) 1));
        rejected.put("a name that is too long", new NewTopic("n".repeat(250), 1, (short) 1));
        rejected.put("no partitions", new NewTopic("rejected", 0, (short) 1));
        rejected.put("too many replicas", new NewTopic("rejected", 1, (short) 2));
        rejected.put("no replicas", new NewTopic("rejected", 1, (short) 0));
        rejected.put("an unknown broker", new NewTopic("rejected", Map.of(0, List.of(99))));
        rejected.put("the same broker twice", new NewTopic("rejected", Map.of(0, List.of(1, 1))));
        rejected.put("a gap in the assignment", new NewTopic("rejected", Map.of(1, List.of(1))));
        rejected.put("an unknown config",
                new NewTopic("rejected", 1, (short) 1).configs(Checks.pairs("no.such.key", "1")));
        rejected.put("an invalid config",
                new NewTopic("rejected", 1, (short) 1).configs(Checks.pairs("retention.ms", "soon")));
        rejected.forEach((why, topic) -> Checks.check("create rejected: " + why, () ->
                Checks.outcome(Checks.admin.createTopics(List.of(topic)).all())));
        Checks.check("create rejected: it exists", () -> {
            Checks.create("twice");
            return Checks.outcome(Checks.admin.createTopics(List.of(new NewTopic("twice", 1, (short) 1))).all());
        });
        Checks.check("create rejected: a name that collides in metrics", () -> {
            Checks.create("with.dot");
            return Checks.outcome(Checks.admin.createTopics(List.of(new NewTopic("with_dot", 1, (short) 1))).all());
        });
        Checks.check("one rejected, one created", () -> {
            CreateTopicsResult result = Checks.admin.createTopics(
                    List.of(new NewTopic("good-one", 1, (short) 1), new NewTopic("bad one", 1, (short) 1)));
            return Checks.outcome(result.values().get("good-one")) + " " + Checks.outcome(result.values().get("bad one"));
        });
    }

    private static void descriptions() {
        Checks.check("describe by name", () -> {
            Checks.create("described", 3);
            return text(Checks.get(Checks.admin.describeTopics(List.of("described")).allTopicNames()).get("described"));
        });
        Checks.check("describe by id", () -> {
            Uuid id = Checks.get(Checks.admin.describeTopics(List.of("described")).allTopicNames())
                    .get("described").topicId();
            return text(Checks.get(Checks.admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds())
                    .get(id));
        });
        Checks.check("describe page by page", () -> {
            Checks.create("paged", 25);
            DescribeTopicsOptions pages = new DescribeTopicsOptions().partitionSizeLimitPerResponse(7);
            return Checks.get(Checks.admin.describeTopics(List.of("described", "paged"), pages).allTopicNames())
                    .values().stream().mapToInt(topic -> topic.partitions().size()).sum();
        });
        Checks.check("describe unknown topics", () ->
                Checks.outcome(Checks.admin.describeTopics(List.of("nothing-here")).allTopicNames()) + " "
                + Checks.outcome(Checks.admin.describeTopics(TopicCollection.ofTopicIds(
                        List.of(Uuid.fromString("AAAAAAAAAAAAAAAAAAAAAg")))).allTopicIds()));
        Checks.check("list", () -> {
            Map<String, TopicListing> listed =
                    Checks.get(Checks.admin.listTopics(new ListTopicsOptions().listInternal(true)).namesToListings());
            TreeSet<String> internal = new TreeSet<>();
            listed.values().stream().filter(TopicListing::isInternal).forEach(each -> internal.add(each.name()));
            boolean all = listed.keySet().containsAll(List.of("described", "paged", "by-default"));
            boolean ids = listed.values().stream().noneMatch(each -> each.topicId().equals(Uuid.ZERO_UUID));
            return internal + " " + all + " " + ids;
        });
    }

    private static void deletions() {
        Checks.check("delete by name", () -> {
            Checks.create("deleted-by-name");
            Checks.get(Checks.admin.deleteTopics(List.of("deleted-by-name")).all());
            return Checks.eventually(false, () ->
                    Checks.get(Checks.admin.listTopics().names()).contains("deleted-by-name"));
        });
        Checks.check("delete by id", () -> {
            Checks.create("deleted-by-id");
            Uuid id = Checks.get(Checks.admin.describeTopics(List.of("deleted-by-id")).allTopicNames())
                    .get("deleted-by-id").topicId();
            Checks.get(Checks.admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all());
            return Checks.outcome(Checks.admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all());
        });
        Checks.check("delete an unknown topic", () ->
                Checks.outcome(Checks.admin.deleteTopics(List.of("nothing-here")).all()));
        Checks.check("a topic that is created again has another id and starts at offset 0", () -> {
            TopicPartition first = Checks.create("anew");
            Traffic.fill(first, 10);
            Uuid before = Checks.get(Checks.admin.describeTopics(List.of("anew")).allTopicNames()).get("anew").topicId();
            Checks.get(Checks.admin.deleteTopics(List.of("anew")).all());
            Checks.create("anew");
            Uuid after = Checks.get(Checks.admin.describeTopics(List.of("anew")).allTopicNames()).get("anew").topicId();
            Traffic.fill(first, 3);
            return before.equals(after) + " " + Traffic.summary(Traffic.read(first));
        });
    }

    private static void growths() {
        Checks.check("more partitions", () -> {
            Checks.create("growing", 2);
            Checks.get(Checks.admin.createPartitions(Map.of("growing", NewPartitions.increaseTo(5))).all());
            TopicPartition last = new TopicPartition("growing", 4);
            Traffic.fill(last, 10);
            return text(Checks.get(Checks.admin.describeTopics(List.of("growing")).allTopicNames()).get("growing"))
                    + Traffic.summary(Traffic.read(last));
        });
        Checks.check("more partitions with a manual assignment", () -> {
            Checks.create("growing-by-hand", 1);
            return outcomeOfGrowth("growing-by-hand", NewPartitions.increaseTo(3, List.of(List.of(1), List.of(1))));
        });
        Map<String, NewPartitions> rejected = new TreeMap<>();
        rejected.put("fewer", NewPartitions.increaseTo(1));
        rejected.put("as many", NewPartitions.increaseTo(2));
        rejected.put("an unknown broker", NewPartitions.increaseTo(3, List.of(List.of(99))));
        rejected.put("too short an assignment", NewPartitions.increaseTo(4, List.of(List.of(1))));
        Checks.check("a topic for rejected requests", () -> Checks.create("stunted", 2).topic());
        rejected.forEach((why, growth) ->
                Checks.check("more partitions rejected: " + why, () -> outcomeOfGrowth("stunted", growth)));
        Checks.check("more partitions rejected: no such topic", () ->
                outcomeOfGrowth("nothing-here", NewPartitions.increaseTo(3)));
        Checks.check("more partitions, validated only", () -> {
            Checks.get(Checks.admin.createPartitions(Map.of("stunted", NewPartitions.increaseTo(9)),
                    new CreatePartitionsOptions().validateOnly(true)).all());
            return Checks.get(Checks.admin.describeTopics(List.of("stunted")).allTopicNames()).get("stunted")
                    .partitions().size();
        });
    }

    private static String outcomeOfGrowth(String topic, NewPartitions growth) {
        return Checks.outcome(Checks.admin.createPartitions(Map.of(topic, growth)).all());
    }

    private static Object created(NewTopic topic) throws Exception {
        CreateTopicsResult result = Checks.admin.createTopics(List.of(topic));
        Checks.get(result.all());
        Checks.awaitTopic(topic.name());
        List<String> overridden = new ArrayList<>();
        Checks.get(result.config(topic.name())).entries().stream().filter(entry -> !entry.isDefault())
                .forEach(entry -> overridden.add(entry.name() + "=" + entry.value() + " " + entry.source()));
        overridden.sort(null);
        return Checks.get(result.numPartitions(topic.name())) + " " + Checks.get(result.replicationFactor(topic.name()))
                + " " + !Checks.get(result.topicId(topic.name())).equals(Uuid.ZERO_UUID)
                + " " + Checks.get(result.config(topic.name())).entries().size() + " " + overridden
                + " " + text(Checks.get(Checks.admin.describeTopics(List.of(topic.name())).allTopicNames())
                        .get(topic.name()));
    }

    private static String text(TopicDescription topic) {
        StringBuilder text = new StringBuilder(topic.name() + (topic.isInternal() ? " internal" : ""));
        for (TopicPartitionInfo each : topic.partitions()) {
            text.append(" [").append(each.partition()).append(" led by ").append(each.leader().id());
            text.append(" replicas ").append(ids(each.replicas())).append(" isr ").append(ids(each.isr()));
            text.append(" elr ").append(ids(each.elr())).append(ids(each.lastKnownElr())).append(']');
        }
        return text.append(' ').append(topic.authorizedOperations()).toString();
    }

    private static List<Integer> ids(Collection<Node> nodes) {
        return nodes == null ? null : nodes.stream().map(Node::id).toList();
    }
}
