import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Arguments: bootstrap servers and the node id. Alters one resource of each type and prints how the broker describes
 * them, as one JSON object.
 */
public class DescribedByKafka {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0], "default.api.timeout.ms", "120000"))) {
            ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "t");
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, arguments[1]);
            ConfigResource cluster = new ConfigResource(ConfigResource.Type.BROKER, "");
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, "g");
            ConfigResource metrics = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "m");
            admin.createTopics(List.of(new NewTopic("t", 1, (short) 1))).all().get();
            set(admin, topic, "cleanup.policy", "compact, delete", "segment.bytes", "3000000");
            set(admin, broker, "log.retention.ms", "1000", "plugin.of.broker", "x", "leader.replication.throttled.rate", "100");
            set(admin, cluster, "log.segment.bytes", " 2000000", "plugin.of.cluster", "y", "log.retention.ms", "2000");
            set(admin, group, "consumer.session.timeout.ms", "50000");
            set(admin, metrics, "interval.ms", "5000");
            // The broker replays these changes in order after the controller has responded, and applies its own configs
            // after that.
            while (!"5000".equals(value(admin, metrics, "interval.ms"))
                    || !"1000".equals(value(admin, broker, "log.retention.ms"))) {
                Thread.sleep(100);
            }
            Thread.sleep(1000);
            ObjectNode all = JSON.createObjectNode();
            describe(admin, topic, all.putArray("topic"));
            describe(admin, broker, all.putArray("broker"));
            describe(admin, cluster, all.putArray("cluster"));
            describe(admin, group, all.putArray("group"));
            describe(admin, metrics, all.putArray("client_metrics"));
            System.out.println(JSON.writeValueAsString(all));
        }
    }

    private static void set(Admin admin, ConfigResource resource, String... pairs) throws Exception {
        Collection<AlterConfigOp> operations = new ArrayList<>();
        for (int index = 0; index < pairs.length; index += 2) {
            ConfigEntry entry = new ConfigEntry(pairs[index], pairs[index + 1]);
            operations.add(new AlterConfigOp(entry, AlterConfigOp.OpType.SET));
        }
        admin.incrementalAlterConfigs(Map.of(resource, operations)).all().get();
    }

    private static String value(Admin admin, ConfigResource resource, String key) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(key).value();
    }

    private static void describe(Admin admin, ConfigResource resource, ArrayNode into) throws Exception {
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource), options).all().get().get(resource).entries()) {
            ObjectNode node = into.addObject();
            node.put("name", entry.name());
            node.put("value", entry.value());
            node.put("source", entry.source().name());
            node.put("read_only", entry.isReadOnly());
            node.put("sensitive", entry.isSensitive());
            node.put("kind", entry.type().name());
            node.put("documented", entry.documentation() != null);
            ArrayNode synonyms = node.putArray("synonyms");
            for (ConfigEntry.ConfigSynonym synonym : entry.synonyms()) {
                synonyms.addArray().add(synonym.name()).add(synonym.value()).add(synonym.source().name());
            }
        }
    }
}
