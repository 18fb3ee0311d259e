import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.ConfigResource.Type;

final class ConfigChecks {
    private static final ConfigResource BROKER = new ConfigResource(Type.BROKER, "1");
    private static final ConfigResource ALL_BROKERS = new ConfigResource(Type.BROKER, "");

    private ConfigChecks() { }

    static void all() {
        topics();
        rejections();
        brokers();
        resources();
    }

    private static void topics() {
        ConfigResource topic = new ConfigResource(Type.TOPIC, "tuned");
        Checks.check("describe a topic's configs", () -> {
            Checks.create("tuned", "retention.ms", "5000");
            return all(topic);
        });
        Checks.check("set, append, subtract, delete", () -> {
            StringBuilder steps = new StringBuilder();
            for (AlterConfigOp step : List.of(
                    operation("retention.ms", "7000", OpType.SET),
                    operation("cleanup.policy", "compact", OpType.APPEND),
                    operation("cleanup.policy", "delete", OpType.SUBTRACT),
                    operation("retention.ms", "", OpType.DELETE))) {
                alter(topic, step);
                if (step.opType() == OpType.SET) {
                    Checks.eventually("7000", () -> value(topic, "retention.ms"));
                }
                steps.append(shown(topic, "retention.ms")).append(' ');
                steps.append(shown(topic, "cleanup.policy")).append("; ");
            }
            return steps;
        });
        Checks.check("validate configs only", () -> {
            AlterConfigsOptions dry = new AlterConfigsOptions().validateOnly(true);
            Checks.get(Checks.admin.incrementalAlterConfigs(
                    Map.of(topic, List.of(operation("retention.ms", "1", OpType.SET))), dry).all());
            return shown(topic, "retention.ms");
        });
        Checks.check("synonyms and documentation", () -> {
            DescribeConfigsOptions full = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
            Config config = Checks.get(Checks.admin.describeConfigs(List.of(topic), full).all()).get(topic);
            ConfigEntry entry = config.get("cleanup.policy");
            long documented = config.entries().stream().filter(each -> each.documentation() != null).count();
            return entry.synonyms() + " " + entry.type() + " " + (documented == config.entries().size());
        });
        Checks.check("a changed max.message.bytes takes effect at once", () -> {
            var to = Checks.create("shrinking");
            Traffic.fill(to, 20);
            alter(new ConfigResource(Type.TOPIC, "shrinking"), operation("max.message.bytes", "300", OpType.SET));
            return Checks.eventually("RecordTooLargeException", () -> {
                try (var producer = Traffic.producer()) {
                    producer.send(Traffic.record(to, 0, "k", "x".repeat(1000))).get();
                    return "accepted";
                } catch (Exception thrown) {
                    return Checks.named(thrown);
                }
            });
        });
    }

    private static void rejections() {
        Checks.check("a topic for rejected configs", () -> Checks.create("stubborn").topic());
        ConfigResource topic = new ConfigResource(Type.TOPIC, "stubborn");
        rejected("an unknown key", topic, operation("no.such.key", "1", OpType.SET));
        rejected("a value of the wrong type", topic, operation("retention.ms", "soon", OpType.SET));
        rejected("a value out of range", topic, operation("max.message.bytes", "-5", OpType.SET));
        rejected("a value that is not on the list", topic, operation("cleanup.policy", "forget", OpType.SET));
        rejected("appending to what is not a list", topic, operation("retention.ms", "1", OpType.APPEND));
        rejected("an unknown topic", new ConfigResource(Type.TOPIC, "nothing-here"),
                operation("retention.ms", "1", OpType.SET));
        rejected("a read-only broker key", BROKER, operation("num.partitions", "9", OpType.SET));
        rejected("a second read-only broker key", BROKER, operation("broker.rack", "r", OpType.SET));
        rejected("a broker's value of the wrong type", BROKER, operation("log.retention.ms", "soon", OpType.SET));
        Checks.check("describe rejected: an unknown topic", () ->
                Checks.outcome(Checks.admin.describeConfigs(List.of(new ConfigResource(Type.TOPIC, "nothing-here")))
                        .all()));
    }

    private static void brokers() {
        Checks.check("describe a broker's configs", () -> {
            Config config = Checks.get(Checks.admin.describeConfigs(List.of(BROKER)).all()).get(BROKER);
            List<String> given = config.entries().stream().filter(each -> !each.isDefault())
                    .map(ConfigEntry::name).toList();
            return config.entries().size() + " " + Checks.sorted(given);
        });
        Checks.check("describe the brokers' defaults", () -> all(ALL_BROKERS));
        Checks.check("a dynamic broker config", () -> {
            alter(BROKER, operation("log.retention.ms", "123456", OpType.SET));
            Checks.eventually("123456", () -> value(BROKER, "log.retention.ms"));
            String one = shown(BROKER, "log.retention.ms");
            alter(BROKER, operation("log.retention.ms", "", OpType.DELETE));
            Checks.eventually("null", () -> value(BROKER, "log.retention.ms"));
            return one + " " + shown(BROKER, "log.retention.ms");
        });
        Checks.check("a default of all brokers reaches topics", () -> {
            Checks.create("inheriting");
            ConfigResource topic = new ConfigResource(Type.TOPIC, "inheriting");
            alter(ALL_BROKERS, operation("log.segment.bytes", "7654321", OpType.SET));
            Checks.eventually("7654321", () -> value(topic, "segment.bytes"));
            String found = shown(topic, "segment.bytes") + " " + shown(BROKER, "log.segment.bytes") + " "
                    + shown(ALL_BROKERS, "log.segment.bytes");
            alter(ALL_BROKERS, operation("log.segment.bytes", "", OpType.DELETE));
            Checks.eventually("1073741824", () -> value(topic, "segment.bytes"));
            return found + " " + shown(topic, "segment.bytes");
        });
        Checks.check("a password is not shown", () -> {
            alter(BROKER, operation("listener.name.other.ssl.key.password", "secret", OpType.SET));
            Checks.eventually("null", () -> value(BROKER, "listener.name.other.ssl.key.password"));
            return shown(BROKER, "listener.name.other.ssl.key.password");
        });
    }

    private static void resources() {
        Checks.check("config resources of every kind", () -> {
            alter(new ConfigResource(Type.GROUP, "some-group"),
                    operation("consumer.session.timeout.ms", "50000", OpType.SET));
            alter(new ConfigResource(Type.CLIENT_METRICS, "some-metrics"), operation("interval.ms", "5000", OpType.SET));
            Set<String> found = new TreeSet<>();
            for (Type type : List.of(Type.GROUP, Type.CLIENT_METRICS, Type.BROKER)) {
                Checks.get(Checks.admin.listConfigResources(Set.of(type), new org.apache.kafka.clients.admin
                        .ListConfigResourcesOptions()).all()).forEach(each -> found.add(each.toString()));
            }
            return found;
        });
        Checks.check("config resources: topics are among them", () -> {
            Collection<ConfigResource> found = Checks.get(Checks.admin.listConfigResources().all());
            return found.contains(new ConfigResource(Type.TOPIC, "tuned"));
        });
        Checks.check("describe a group's and a metrics' configs", () ->
                shown(new ConfigResource(Type.GROUP, "some-group"), "consumer.session.timeout.ms") + " "
                + shown(new ConfigResource(Type.CLIENT_METRICS, "some-metrics"), "interval.ms"));
    }

    static AlterConfigOp operation(String key, String value, OpType type) {
        return new AlterConfigOp(new ConfigEntry(key, value), type);
    }

    static void alter(ConfigResource resource, AlterConfigOp... operations) throws Exception {
        Checks.get(Checks.admin.incrementalAlterConfigs(Map.of(resource, List.of(operations))).all());
    }

    private static void rejected(String why, ConfigResource resource, AlterConfigOp operation) {
        Checks.check("alter rejected: " + why, () ->
                Checks.outcome(Checks.admin.incrementalAlterConfigs(Map.of(resource, List.of(operation))).all()));
    }

    private static ConfigEntry entry(ConfigResource resource, String key) throws Exception {
        return Checks.get(Checks.admin.describeConfigs(List.of(resource)).all()).get(resource).get(key);
    }

    private static String value(ConfigResource resource, String key) throws Exception {
        ConfigEntry found = entry(resource, key);
        return found == null ? "absent" : String.valueOf(found.value());
    }

    private static String shown(ConfigResource resource, String key) throws Exception {
        ConfigEntry found = entry(resource, key);
        return found == null ? key + " absent" : found.value() + " by " + found.source()
                + (found.isSensitive() ? " sensitive" : "") + (found.isReadOnly() ? " fixed" : "");
    }

    private static String all(ConfigResource resource) throws Exception {
        List<String> entries = new ArrayList<>();
        for (ConfigEntry each : Checks.get(Checks.admin.describeConfigs(List.of(resource)).all()).get(resource)
                .entries()) {
            entries.add(each.name() + "=" + each.value() + " " + each.source() + (each.isReadOnly() ? " fixed" : ""));
        }
        return Checks.sorted(entries).toString();
    }
}
