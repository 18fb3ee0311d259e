import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import kafka.server.KafkaConfig;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Reads {"files": [base64, …], "configs": [{key: value}, …], "releases": [name, …]} from stdin and prints the parsed
 * properties, the errors of Kafka's config validation, and the metadata versions of the releases.
 */
public class KafkaServerProperties {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        JsonNode asked = JSON.readTree(System.in);
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode files = answer.putArray("files");
        for (JsonNode file : asked.path("files")) {
            files.add(pairs(Base64.getDecoder().decode(file.textValue())));
        }
        ArrayNode configs = answer.putArray("configs");
        for (JsonNode config : asked.path("configs")) {
            configs.add(refusal(config));
        }
        ObjectNode releases = answer.putObject("releases");
        for (JsonNode release : asked.path("releases")) {
            try {
                releases.put(release.textValue(), MetadataVersion.fromVersionString(release.textValue(), false).featureLevel());
            } catch (IllegalArgumentException unknown) {
                releases.putNull(release.textValue());
            }
        }
        System.out.println(JSON.writeValueAsString(answer));
    }

    private static ObjectNode pairs(byte[] file) throws Exception {
        Properties properties = new Properties();
        try {
            properties.load(new ByteArrayInputStream(file));
        } catch (IllegalArgumentException malformed) {
            return null;
        }
        ObjectNode node = JSON.createObjectNode();
        properties.forEach((key, value) -> node.put((String) key, (String) value));
        return node;
    }

    /** The error of Kafka's config validation, or null. */
    private static String refusal(JsonNode config) {
        Map<String, String> properties = new HashMap<>();
        config.properties().forEach(entry -> properties.put(entry.getKey(), entry.getValue().textValue()));
        try {
            new KafkaConfig(properties, false);
            return null;
        } catch (RuntimeException refused) {
            return String.valueOf(refused.getMessage());
        }
    }
}
