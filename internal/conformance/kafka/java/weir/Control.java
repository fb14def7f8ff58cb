package weir;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

/**
 * Asks the program that started this JVM: one connection for each question, one line of JSON each
 * way. It starts no thread, because Kafka's tests fail when a thread outlives them.
 */
final class Control {
    static final ObjectMapper JSON = new ObjectMapper();

    private static final int PORT = Integer.getInteger("weir.control");

    private Control() {}

    static ObjectNode question(String action) {
        return JSON.createObjectNode().put("do", action);
    }

    /** Sends a question, and returns its answer. */
    static JsonNode ask(ObjectNode question) {
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), PORT)) {
            socket.getOutputStream().write((JSON.writeValueAsString(question) + "\n").getBytes(StandardCharsets.UTF_8));
            String line = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8)).readLine();
            if (line == null) {
                throw new IOException("the connection ended without an answer to " + question);
            }
            JsonNode answer = JSON.readTree(line);
            if (answer.hasNonNull("error")) {
                throw new IllegalStateException(question.get("do").asText() + ": " + answer.get("error").asText());
            }
            return answer;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
