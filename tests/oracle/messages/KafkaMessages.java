import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * Kafka's message classes behind a line protocol on stdin and stdout, one line of output per command:
 *
 * <pre>
 *   read NAME VERSION HEX      the message decoded and encoded again:  HEX JSON
 *   make NAME VERSION SEED     a random message:                       HEX JSON
 *   new NAME VERSION           a message with default values:          HEX JSON
 * </pre>
 *
 * A line that begins with "!" is an exception of Kafka.
 */
public class KafkaMessages {
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.",
        "org.apache.kafka.raft.generated.",
    };
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintWriter answers = new PrintWriter(
            new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8)));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] words = line.split(" ", -1);
            try {
                answers.println(answer(words));
            } catch (InvocationTargetException e) {
                answers.println("! " + e.getCause().toString().replace('\n', ' '));
            } catch (Throwable e) {
                answers.println("! " + e.toString().replace('\n', ' '));
            }
        }
        answers.flush();
    }

    private static String answer(String[] words) throws Exception {
        Class<?> type = classOf(words[1]);
        short version = Short.parseShort(words[2]);
        Message message = (Message) type.getDeclaredConstructor().newInstance();
        if (!words[0].equals("new")) {
            byte[] bytes = words[0].equals("read")
                ? HEX.parseHex(words[3])
                : random(type, version, new Random(Long.parseLong(words[3])));
            ByteBuffer buffer = ByteBuffer.wrap(bytes);
            message.read(new ByteBufferAccessor(buffer), version);
            if (buffer.hasRemaining()) {
                return "! left " + buffer.remaining() + " bytes unread";
            }
        }
        ByteBuffer written = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] bytes = new byte[written.remaining()];
        written.get(bytes);
        return HEX.formatHex(bytes) + " " + json(type, message, version);
    }

    private static Class<?> classOf(String name) throws ClassNotFoundException {
        for (String suffix : new String[] {"Data", ""}) {
            for (String prefix : PACKAGES) {
                try {
                    return Class.forName(prefix + name + suffix);
                } catch (ClassNotFoundException e) {
                    // Try the other package.
                }
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static String json(Class<?> type, Message message, short version) throws Exception {
        Method write = Class.forName(type.getName() + "JsonConverter").getMethod("write", type, short.class);
        return ((JsonNode) write.invoke(null, message, version)).toString();
    }

    /** Random bytes according to the schema of the message class. */
    private static byte[] random(Class<?> type, short version, Random random) throws Exception {
        Schema schema = ((Schema[]) type.getField("SCHEMAS").get(null))[version];
        Struct struct = (Struct) value(schema, random);
        ByteBuffer buffer = ByteBuffer.allocate(struct.sizeOf());
        struct.writeTo(buffer);
        return buffer.array();
    }

    private static Object value(Type type, Random random) {
        if (type.isNullable() && random.nextInt(4) == 0) {
            return null;
        }
        if (type instanceof Schema schema) {
            Struct struct = new Struct(schema);
            for (BoundField field : schema.fields()) {
                struct.set(field, value(field.def.type, random));
            }
            return struct;
        }
        if (type.isArray()) {
            Object[] elements = new Object[random.nextInt(3)];
            for (int i = 0; i < elements.length; i++) {
                elements[i] = value(type.arrayElementType().get(), random);
            }
            return elements;
        }
        if (type instanceof TaggedFields tagged) {
            return tags(tagged, random);
        }
        return primitive(((Type.DocumentedType) type).typeName(), random);
    }

    private static Map<Integer, Object> tags(TaggedFields tagged, Random random) {
        Map<Integer, Object> values = new TreeMap<>();
        for (Map.Entry<Integer, Field> entry : tagged.fields().entrySet()) {
            if (random.nextInt(3) > 0) {
                Type type = entry.getValue().type;
                Object value = value(type, random);
                while (value == null && type instanceof Schema) {
                    // Kafka's schemas and classes differ on a tagged null struct; the classes define the format.
                    value = value(type, random);
                }
                values.put(entry.getKey(), value);
            }
        }
        if (random.nextInt(4) == 0) {
            int tag = 100 + random.nextInt(100_000);
            values.put(tag, new RawTaggedField(tag, bytes(random)));
        }
        return values;
    }

    private static Object primitive(String name, Random random) {
        switch (name.replace("COMPACT_", "").replace("NULLABLE_", "")) {
            case "BOOLEAN": return random.nextBoolean();
            case "INT8": return (byte) number(random);
            case "INT16": return (short) number(random);
            case "UINT16": return (int) (number(random) & 0xffff);
            case "INT32": return (int) number(random);
            case "UINT32": return number(random) & 0xffffffffL;
            case "INT64": return number(random);
            case "FLOAT64": return random.nextGaussian() * 1e6;
            case "UUID": return new Uuid(random.nextLong(), random.nextLong());
            case "STRING": return text(random);
            case "BYTES": return ByteBuffer.wrap(bytes(random));
            case "RECORDS": return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes(random)));
            default: throw new IllegalArgumentException("no random " + name);
        }
    }

    private static long number(Random random) {
        return random.nextInt(3) == 0 ? random.nextInt(5) - 2 : random.nextLong();
    }

    private static byte[] bytes(Random random) {
        byte[] bytes = new byte[random.nextInt(6)];
        random.nextBytes(bytes);
        return bytes;
    }

    private static String text(Random random) {
        String[] alphabet = {"a", "Z", "-", "ü", "€", "\u6c34", "\ud83d\ude00", " "};
        StringBuilder text = new StringBuilder();
        for (int i = random.nextInt(random.nextInt(20) == 0 ? 200 : 6); i > 0; i--) {
            text.append(alphabet[random.nextInt(alphabet.length)]);
        }
        return text.toString();
    }
}
