package weir;

import kafka.server.KafkaConfig;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.metadata.BrokerState;

import java.time.Duration;
import java.util.Map;

/** One process of weir, with those methods of a KafkaBroker that a client or an operator has too. */
public final class Broker {
    final int id;
    final String address;

    private final Cluster cluster;
    private final KafkaConfig config;
    private boolean running = true;

    Broker(Cluster cluster, int id, String address) {
        this.cluster = cluster;
        this.id = id;
        this.address = address;
        this.config = new KafkaConfig(Map.of(
            "node.id", String.valueOf(id), "process.roles", "broker", "controller.listener.names", "CONTROLLER",
            "controller.quorum.voters", "3000@localhost:9093", "log.dirs", "/nonexistent/" + Uuid.randomUuid()), false);
    }

    /** Has the id, and the defaults of Kafka. Its directories do not exist. */
    public KafkaConfig config() {
        return config;
    }

    public String clusterId() {
        return cluster.clusterId();
    }

    public int boundPort(ListenerName ignored) {
        return Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
    }

    public BrokerState brokerState() {
        return running ? BrokerState.RUNNING : BrokerState.NOT_RUNNING;
    }

    public boolean isShutdown() {
        return !running;
    }

    public void shutdown() {
        if (running) {
            running = false;
            cluster.control("shutdown", id);
        }
    }

    public void shutdown(Duration ignored) {
        shutdown();
    }

    public void awaitShutdown() {}

    public void startup() {
        if (!running) {
            cluster.control("restart", id);
            running = true;
        }
    }
}
