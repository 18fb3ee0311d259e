import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command line tools, one after the other in one process, because the start of a JVM takes most of their time.
 * Input, one line each: {"tool": class, "arguments": […], "input": text}. Output: {"code": exit code, "output": text}.
 */
final class Tools {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Tools() { }

    /** Not an Exception: tools catch those and would continue. */
    private static final class Exited extends Error {
        private static final long serialVersionUID = 1L;
    }

    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static Integer exitCode;

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((code, message) -> exit(code));
        Exit.setHaltProcedure((code, message) -> exit(code));
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        PrintStream answers = System.out;
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            answers.println(JSON.writeValueAsString(run(JSON.readTree(line))));
        }
        Runtime.getRuntime().halt(0);
    }

    /** The first exit code counts, and later output is ignored: a tool may catch even an Error. */
    private static void exit(int code) {
        if (exitCode == null) {
            exitCode = code;
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(System.out);
        }
        throw new Exited();
    }

    private static Map<String, Object> run(JsonNode question) throws Exception {
        List<String> arguments = new ArrayList<>();
        question.get("arguments").forEach(each -> arguments.add(each.asText()));
        System.setIn(new ByteArrayInputStream(question.get("input").asText().getBytes(StandardCharsets.UTF_8)));
        ByteArrayOutputStream written = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        exitCode = null;
        HOOKS.clear();
        try (PrintStream captured = new PrintStream(written, true, StandardCharsets.UTF_8)) {
            System.setOut(captured);
            System.setErr(captured);
            call(question.get("tool").asText(), arguments.toArray(new String[0]));
            System.setOut(captured);
            System.setErr(captured);
            HOOKS.forEach(Runnable::run);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        int code = exitCode == null ? 0 : exitCode;
        return Map.of("code", code, "output", written.toString(StandardCharsets.UTF_8));
    }

    private static void call(String tool, String[] arguments) throws Exception {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (exitCode == null) {
                thrown.getCause().printStackTrace();
                exitCode = 1;
            }
        }
    }
}
