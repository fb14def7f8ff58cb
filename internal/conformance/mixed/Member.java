import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member by Kafka's own client: it says what it reads, and commits it then. SIGTERM ends it. */
public final class Member {
    private static volatile boolean ends;

    public static void main(String[] args) {
        var consumer = new KafkaConsumer<String, String>(Map.of(
            "bootstrap.servers", args[0], "group.id", args[1], "client.id", args[3],
            "group.protocol", "consumer", "auto.offset.reset", "earliest", "enable.auto.commit", "false",
            "request.timeout.ms", "5000", "default.api.timeout.ms", "10000"), // a commit keeps it from its group
            new StringDeserializer(), new StringDeserializer());
        var main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            ends = true;
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }));
        try (consumer) {
            consumer.subscribe(List.of(args[2]));
            while (!ends) {
                try {
                    var records = consumer.poll(Duration.ofMillis(500));
                    for (ConsumerRecord<String, String> r : records) {
                        System.out.println("read " + r.partition() + " " + r.offset() + " " + r.value());
                    }
                    System.out.flush();
                    if (!records.isEmpty()) {
                        consumer.commitSync();
                    }
                } catch (WakeupException e) {
                    // ends says why
                } catch (RetriableException | CommitFailedException e) {
                    System.err.println(e); // what was not committed comes again, here or to another member
                }
            }
        }
    }
}
