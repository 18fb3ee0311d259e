import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints, as one JSON object, every config key of Apache Kafka, and which of many values each accepts.
 */
public class KafkaConfigKeys {
    private static final ObjectMapper JSON = new ObjectMapper();

    private static final List<String> TEXTS = List.of(
        "", " ", "0", "1", "-1", "-2", "-3", "2", "3", " 4 ", "+7", "007", "1.", ".5", "0.5", "0.51", "1.1", "1e3", "2.5f",
        "0x10", "1_000", "1 0", "--1", "32767", "32768", "2147483647", "2147483648", "-2147483648", "-2147483649",
        "9223372036854775807", "9223372036854775808", "true", "TRUE", " false ", "yes", "a", " a b ", "a,b", "a,a",
        "a,,b", " a , b ", ",", "delete", "compact,delete", "compact, delete", "delete,delete", "Delete", "gzip", "GZIP",
        "zstd", "PLAINTEXT", "plaintext", "required", "broker", "broker,controller", "controller,broker,broker",
        "classic,consumer", "upgrade", "BiDirectional", "es256", "1@localhost:9093", "1@localhost:9093,2@[::1]:9094",
        "localhost:9093", "[::1]:9093", "localhost", "localhost:", ":9093", "localhost:99999", "1@localhost", "*",
        "0:1,1:2", "0:1,x", "*,0:1", "-1:2", "latest", "earliest", "Latest", "by_duration:PT1H", "by_duration:P1DT2H3M4.5S",
        "by_duration:P", "by_duration:PT", "by_duration:1h", "by_duration:", "by_duration:-PT1H", "by_duration", "read_committed",
        "READ_COMMITTED", "CreateTime", "createtime", "LogAppendTime", "none");

    private static final List<List<String>> ALTERATIONS = List.of(
        List.of("ssl.keystore.type", "PEM"), List.of("listener.name.x.ssl.keystore.type", "PEM"),
        List.of("listener.name.x.max.connections", "5"), List.of("listener.name.x.max.connections", "a"),
        List.of("listener.name.x.num.network.threads", "0"), List.of("listener.name.x.scram.sasl.jaas.config", "5"),
        List.of("ssl.client.auth", "none"), List.of("sasl.enabled.mechanisms", "PLAIN"), List.of("listeners", "A://:9"),
        List.of("log.retention.hours", "5"), List.of("log.retention.ms", "5"), List.of("listener.name.x.log.retention.hours", "5"),
        List.of("leader.replication.throttled.rate", "-5"), List.of("leader.replication.throttled.rate", "5"),
        List.of("foo", "5"), List.of("listener.name.x.foo", "5"), List.of("node.id", "5"), List.of("num.io.threads", "0"),
        List.of("num.io.threads", "4"), List.of("log.cleanup.policy", "x"), List.of("metric.reporters", "nope"),
        List.of("internal.metadata.delete.delay.millis", "5"), List.of("advertised.listeners", "5"),
        List.of("connections.max.reauth.ms", "5"), List.of("cordoned.log.dirs", "*"), List.of("ssl.truststore.password", "x"));

    public static void main(String[] arguments) throws Exception {
        ObjectNode all = JSON.createObjectNode();
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        describe(all.putArray("broker"), AbstractKafkaConfig.CONFIG_DEF.configKeys().values(), modes);
        describe(all.putArray("topic"), LogConfig.configKeys().values(), Map.of());
        describe(all.putArray("group"), GroupConfig.CONFIG_DEF.configKeys().values(), Map.of());
        describe(all.putArray("client_metrics"), ClientMetricsConfigs.configDef().configKeys().values(), Map.of());
        ObjectNode topicSynonyms = all.putObject("topic_synonyms");
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((name, synonyms) -> {
            ArrayNode list = topicSynonyms.putArray(name);
            synonyms.forEach(synonym -> list.addArray().add(synonym.name()).add(synonym.converter().apply("1")));
        });
        ObjectNode groupSynonyms = all.putObject("group_synonyms");
        GroupConfig.ALL_GROUP_CONFIG_SYNONYMS.forEach((name, synonym) -> groupSynonyms.put(name, synonym.orElse(null)));
        ObjectNode brokerSynonyms = all.putObject("broker_synonyms");
        List<String> names = new ArrayList<>(AbstractKafkaConfig.CONFIG_DEF.names());
        names.addAll(List.of("listener.name.x.ssl.keystore.type", "listener.name.x.plain.sasl.jaas.config", "listener.name.x.y.z"));
        for (String name : names) {
            ArrayNode list = brokerSynonyms.putArray(name);
            DynamicBrokerConfig.brokerConfigSynonyms(name, true).forEach(list::add);
        }
        ArrayNode dynamicOnly = all.putArray("dynamic_only");
        modes.keySet().stream().filter(name -> !AbstractKafkaConfig.CONFIG_DEF.names().contains(name)).forEach(dynamicOnly::add);
        alterations(all.putArray("alterations"));
        System.out.println(JSON.writeValueAsString(all));
    }

    private static void describe(ArrayNode into, Collection<ConfigDef.ConfigKey> keys, Map<String, String> modes)
            throws ReflectiveOperationException {
        for (ConfigDef.ConfigKey key : keys) {
            ObjectNode node = into.addObject();
            node.put("name", key.name);
            node.put("kind", key.type.name());
            node.put("required", !key.hasDefault());
            node.put("default", key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null);
            node.put("internal", key.internalConfig);
            node.put("sensitive", key.type == ConfigDef.Type.PASSWORD);
            node.put("mode", modes.getOrDefault(key.name, "read-only"));
            ObjectNode accepts = node.putObject("accepts");
            if (key.type == ConfigDef.Type.CLASS) {
                continue;
            }
            for (String text : texts(key)) {
                accepts.put(text, accepted(key, text));
            }
        }
    }

    /** The normalised form of an accepted value, or null. */
    private static String accepted(ConfigDef.ConfigKey key, String text) {
        try {
            Object value = ConfigDef.parseType(key.name, text, key.type);
            if (key.validator != null) {
                key.validator.ensureValid(key.name, value);
            }
            return key.type == ConfigDef.Type.PASSWORD ? text.trim() : ConfigDef.convertToString(value, key.type);
        } catch (ConfigException | IllegalArgumentException refused) {
            return null;
        }
    }

    private static Set<String> texts(ConfigDef.ConfigKey key) throws ReflectiveOperationException {
        Set<String> texts = new LinkedHashSet<>(TEXTS);
        if (key.validator instanceof ConfigDef.Range) {
            for (String bound : List.of("min", "max")) {
                var field = ConfigDef.Range.class.getDeclaredField(bound);
                field.setAccessible(true);
                Number number = (Number) field.get(key.validator);
                if (number != null) {
                    for (long delta = -1; delta <= 1; delta++) {
                        texts.add(Long.toString(number.longValue() + delta));
                    }
                }
            }
        }
        return texts;
    }

    private static void alterations(ArrayNode into) {
        for (boolean perBroker : new boolean[] {true, false}) {
            for (List<String> pair : ALTERATIONS) {
                Properties properties = new Properties();
                properties.put(pair.get(0), pair.get(1));
                boolean accepted = true;
                try {
                    DynamicBrokerConfig.validateConfigs(properties, perBroker);
                } catch (ConfigException refused) {
                    accepted = false;
                }
                into.addObject().put("name", pair.get(0)).put("value", pair.get(1)).put("per_broker", perBroker)
                    .put("accepted", accepted);
            }
        }
    }
}
