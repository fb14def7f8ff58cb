package weir;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.plain.PlainLoginModule;
import org.apache.kafka.common.security.scram.ScramLoginModule;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.opentest4j.TestAbortedException;

import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;

/** The cluster of one case: processes of weir on one store. What it waits for, a client can see. */
public final class Cluster implements ClusterInstance {
    private static final long WAIT_MS = 60_000;

    /** What the case in progress touched of a broker's internals, or null. */
    private static volatile Internals.Touched touched;

    private final ClusterConfig config;
    private final boolean combined;
    private final Map<Integer, Broker> brokers = new TreeMap<>();

    private String name;
    private int number;
    private boolean started;
    private boolean stopped;

    public Cluster(ClusterConfig config, boolean combined) {
        this.config = config;
        this.combined = combined;
    }

    /** Aborts a case that differs from another one only in where Kafka's controllers run. */
    public void prepare(String name) {
        this.name = name;
        touched = null;
        if (combined && config.clusterTypes().contains(Type.KRAFT)) {
            throw new TestAbortedException("twin");
        }
    }

    static Internals.Touched touched(String what) {
        touched = new Internals.Touched(what);
        return touched;
    }

    /** Returns what aborted the case, if a test's own retries or assertions have hidden it. */
    public Throwable explained(Throwable error) {
        return touched != null ? touched : error;
    }

    @Override
    public void start() {
        if (started) {
            return;
        }
        ObjectNode question = Control.question("start")
            .put("case", name)
            .put("brokers", config.numBrokers())
            .put("security", config.brokerSecurityProtocol().name);
        question.set("properties", Control.JSON.valueToTree(config.serverProperties()));
        ObjectNode features = question.putObject("features");
        config.features().forEach((feature, level) -> features.put(feature.featureName(), String.valueOf(level)));
        question.set("perBroker", Control.JSON.valueToTree(config.perServerOverrideProperties()));
        JsonNode answer = Control.ask(question);
        if (answer.hasNonNull("lacks")) {
            throw new TestAbortedException(answer.get("lacks").asText());
        }
        started = true;
        number = answer.get("cluster").asInt();
        for (JsonNode broker : answer.get("brokers")) {
            int id = broker.get("id").asInt();
            brokers.put(id, new Broker(this, id, broker.get("address").asText()));
        }
    }

    @Override
    public void stop() {
        if (started && !stopped) {
            stopped = true;
            Control.ask(Control.question("stop").put("cluster", number));
        }
    }

    void control(String action, int broker) {
        Control.ask(Control.question(action).put("cluster", number).put("broker", broker));
    }

    @Override
    public boolean started() {
        return started;
    }

    @Override
    public boolean stopped() {
        return stopped;
    }

    @Override
    public void shutdownBroker(int id) {
        broker(id).shutdown();
    }

    @Override
    public void startBroker(int id) {
        broker(id).startup();
    }

    private Broker broker(int id) {
        Broker broker = brokers.get(id);
        if (broker == null) {
            throw new IllegalArgumentException("there is no broker " + id + ", only " + brokers.keySet());
        }
        return broker;
    }

    private List<Broker> alive() {
        return brokers.values().stream().filter(b -> !b.isShutdown()).toList();
    }

    // What there is.

    @Override
    public Type type() {
        return combined ? Type.CO_KRAFT : Type.KRAFT;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public Set<Integer> brokerIds() {
        return brokers.keySet();
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        return brokers.entrySet().stream().collect(
            Collectors.toMap(Map.Entry::getKey, b -> Internals.of(KafkaBroker.class, b.getValue()), (a, b) -> a, TreeMap::new));
    }

    /** There are none: brokers decide by the store. */
    @Override
    public Map<Integer, ControllerServer> controllers() {
        return Map.of();
    }

    @Override
    public Set<Integer> controllerIds() {
        return Set.of();
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public ListenerName controllerListenerName() {
        throw touched("controllers");
    }

    @Override
    public String bootstrapServers() {
        return brokers.values().stream().map(b -> b.address).collect(Collectors.joining(","));
    }

    @Override
    public String bootstrapControllers() {
        throw touched("controllers");
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return brokers.values().stream().map(b -> b.boundPort(null)).toList();
    }

    @Override
    public String clusterId() {
        try (Admin admin = admin()) {
            return admin.describeCluster().clusterId().get();
        } catch (InterruptedException | ExecutionException e) {
            throw new IllegalStateException(e);
        }
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        return Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER);
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }

    @Override
    public List<Authorizer> authorizers() {
        throw touched("authorizers");
    }

    /**
     * Lets clients log in with SCRAM where Kafka's cases use PLAIN, with the same user and password:
     * weir makes the passwords of PLAIN, its API keys, itself.
     */
    @Override
    public Map<String, Object> setClientSaslConfig(Map<String, Object> configs) {
        Map<String, Object> all = new HashMap<>(configs);
        if (config.brokerSecurityProtocol() == SecurityProtocol.SASL_PLAINTEXT) {
            all.putIfAbsent("security.protocol", SecurityProtocol.SASL_PLAINTEXT.name);
            all.put("sasl.mechanism", "SCRAM-SHA-256");
            Object given = all.getOrDefault("sasl.jaas.config", String.format("%s required username=\"%s\" password=\"%s\";",
                PlainLoginModule.class.getName(), JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD));
            all.put("sasl.jaas.config", given.toString().replace(PlainLoginModule.class.getName(), ScramLoginModule.class.getName()));
        }
        return all;
    }

    // What is waited for.

    @Override
    public void waitForReadyBrokers() throws InterruptedException {
        waitFor("every broker is known", () -> {
            try (Admin admin = admin()) {
                return admin.describeCluster().nodes().get().size() == alive().size();
            }
        });
    }

    @Override
    public void createTopic(String topic, int partitions, short replicas, Map<String, String> configs) throws InterruptedException {
        create(new NewTopic(topic, partitions, replicas).configs(configs), partitions);
    }

    @Override
    public void createTopicWithAssignment(String topic, Map<Integer, List<Integer>> replicas) throws InterruptedException {
        create(new NewTopic(topic, replicas), replicas.size());
    }

    /**
     * Creates a topic, unless it exists. Kafka's helper ignores every error, and waits for a topic
     * that does not come.
     */
    private void create(NewTopic topic, int partitions) throws InterruptedException {
        try (Admin admin = admin()) {
            admin.createTopics(List.of(topic)).all().get();
        } catch (ExecutionException e) {
            if (e.getCause() instanceof TopicExistsException) {
                return;
            }
            throw new IllegalStateException("create topic " + topic + ": " + e.getCause(), e.getCause());
        }
        waitTopicCreation(topic.name(), partitions);
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        waitFor("topic " + topic + " has " + partitions + " partitions", () -> seenByAll(topic, partitions));
    }

    @Override
    public void waitTopicDeletion(String topic) throws InterruptedException {
        waitFor("topic " + topic + " is gone", () -> seenByAll(topic, 0));
    }

    @Override
    public void ensureConsistentMetadata() {}

    @Override
    public void ensureConsistentMetadata(Collection<KafkaBroker> brokers, Collection<ControllerServer> controllers) {}

    @Override
    public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) throws InterruptedException {
        waitFor("the ACLs are " + entries, () -> {
            try (Admin admin = admin()) {
                Set<AccessControlEntry> found = admin.describeAcls(filter).values().get().stream().map(AclBinding::entry).collect(Collectors.toSet());
                return found.equals(new HashSet<>(entries));
            }
        });
    }

    /**
     * Tells whether every broker says that a topic has so many partitions; 0: that there is none. A
     * client asks any broker, whatever its first address was: so it asks often enough to meet each.
     */
    private boolean seenByAll(String topic, int partitions) throws Exception {
        try (Admin admin = admin()) {
            for (int n = 0; n < 4 * alive().size(); n++) {
                int found = 0;
                try {
                    found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
                } catch (ExecutionException e) {
                    if (!(e.getCause() instanceof UnknownTopicOrPartitionException)) {
                        throw e;
                    }
                }
                if (found != partitions) {
                    return false;
                }
            }
        }
        return true;
    }

    @Override
    public int getLeaderBrokerId(TopicPartition partition) throws InterruptedException, ExecutionException {
        try (Admin admin = admin()) {
            return admin.describeTopics(List.of(partition.topic())).allTopicNames().get().get(partition.topic())
                .partitions().get(partition.partition()).leader().id();
        }
    }

    private static void waitFor(String what, Callable<Boolean> condition) throws InterruptedException {
        long until = System.currentTimeMillis() + WAIT_MS;
        Exception last = null;
        while (System.currentTimeMillis() < until) {
            try {
                if (condition.call()) {
                    return;
                }
            } catch (InterruptedException e) {
                throw e;
            } catch (Exception e) {
                last = e;
            }
            Thread.sleep(50);
        }
        throw new AssertionError("within " + WAIT_MS + " ms it did not become true that " + what, last);
    }
}
