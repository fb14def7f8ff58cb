package org.apache.kafka.streams.integration.utils;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.server.util.MockTime;
import weir.Cluster;

import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;

/**
 * Gives a class of Kafka Streams' tests a cluster of weir. Kafka's class of this name, which starts
 * brokers of Kafka, comes later on the class path. This one has the methods that the tests call.
 */
public class EmbeddedKafkaCluster {
    /** What the tests stamp their records with. It stands still unless a test moves it. */
    public final MockTime time;

    private final Cluster cluster;
    private final Map<String, String> topicSettings;

    public EmbeddedKafkaCluster(int brokers) {
        this(brokers, new Properties());
    }

    public EmbeddedKafkaCluster(int brokers, Properties properties) {
        this(brokers, properties, Map.of());
    }

    public EmbeddedKafkaCluster(int brokers, Properties properties, Map<Integer, Map<String, String>> perBroker) {
        this(brokers, properties, perBroker, System.currentTimeMillis(), System.nanoTime());
    }

    public EmbeddedKafkaCluster(int brokers, Properties properties, Map<Integer, Map<String, String>> perBroker, long now, long nanos) {
        time = new MockTime(now, nanos);
        // As in Kafka's class: members may ask for short sessions, and the first one does not wait.
        Map<String, String> all = new HashMap<>(Map.of("auto.create.topics.enable", "true", "group.min.session.timeout.ms", "1", "group.initial.rebalance.delay.ms", "0"));
        properties.forEach((name, value) -> all.put(name.toString(), value.toString()));
        // weir has no such setting of a broker, only that of a topic.
        topicSettings = "-1".equals(all.remove("log.retention.hours")) ? Map.of("retention.ms", "-1") : Map.of();
        cluster = new Cluster(ClusterConfig.defaultBuilder().setBrokers(brokers).setServerProperties(all).setPerServerProperties(perBroker).build(), false);
        cluster.prepare("the cluster of the class");
    }

    public void start() {
        cluster.start();
    }

    public void stop() {
        cluster.stop();
    }

    public String bootstrapServers() {
        return cluster.bootstrapServers();
    }

    public void createTopics(String... topics) throws InterruptedException {
        for (String topic : topics) {
            createTopic(topic);
        }
    }

    public void createTopic(String topic) throws InterruptedException {
        createTopic(topic, 1);
    }

    public void createTopic(String topic, int partitions) throws InterruptedException {
        createTopic(topic, partitions, 1);
    }

    public void createTopic(String topic, int partitions, int replicas) throws InterruptedException {
        cluster.createTopic(topic, partitions, (short) replicas, topicSettings);
    }

    public void deleteTopic(String topic) {
        delete(List.of(topic));
    }

    public void deleteTopics(String... topics) {
        for (String topic : topics) {
            deleteTopic(topic);
        }
    }

    public void deleteAllTopics() {
        delete(topics(false));
    }

    /** Deletes topics. It ignores those that are gone already. */
    private void delete(Collection<String> topics) {
        try (Admin admin = cluster.admin()) {
            admin.deleteTopics(topics).all().get();
        } catch (ExecutionException e) {
            if (!(e.getCause() instanceof UnknownTopicOrPartitionException)) {
                throw new IllegalStateException("delete " + topics, e.getCause());
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    public Set<String> getAllTopicsInCluster() {
        return topics(true);
    }

    private Set<String> topics(boolean internal) {
        try (Admin admin = cluster.admin()) {
            return admin.listTopics(new ListTopicsOptions().listInternal(internal)).names().get();
        } catch (InterruptedException | ExecutionException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Returns the settings that were made for a topic, without those that it has by default. */
    public Properties getLogConfig(String topic) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Properties set = new Properties();
        try (Admin admin = cluster.admin()) {
            for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
                if (entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) {
                    set.put(entry.name(), entry.value());
                }
            }
        } catch (InterruptedException | ExecutionException e) {
            throw new IllegalStateException(e);
        }
        return set;
    }

    // Settings of groups of Streams' own protocol. Tests make them for all protocols; members of the
    // classic one do not see them.

    public void setGroupSessionTimeout(String group, int milliseconds) {}

    public void setGroupHeartbeatTimeout(String group, int milliseconds) {}

    public void setGroupStandbyReplicas(String group, int standbys) {}

    public void setGroupStreamsInitialRebalanceDelay(String group, int milliseconds) {}
}
