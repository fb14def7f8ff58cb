package org.apache.kafka.common.test.junit;

import org.apache.kafka.common.test.api.ClusterConfig;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestExecutionExceptionHandler;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;
import weir.Cluster;

import java.util.List;

/**
 * Gives a case of Kafka's tests a cluster of weir. Kafka's class of this name, which starts brokers
 * of Kafka, comes later on the class path. Kafka's ClusterTestExtensions, which reads the
 * annotations of the tests, makes one of these for each case.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String name;
    private final ClusterConfig config;
    private final boolean combined;

    public RaftClusterInvocationContext(String name, ClusterConfig config, boolean combined) {
        this.name = name;
        this.config = config;
        this.combined = combined;
    }

    @Override
    public String getDisplayName(int index) {
        return (name + " [" + index + "] " + String.join(", ", config.tags())).strip();
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        Cluster cluster = new Cluster(config, combined);
        return List.of(
            (BeforeEachCallback) context -> {
                cluster.prepare(context.getRequiredTestClass().getName() + "#" + getDisplayName(0));
                if (config.isAutoStart()) {
                    cluster.start();
                }
            },
            (TestExecutionExceptionHandler) (context, error) -> {
                throw cluster.explained(error);
            },
            (AfterTestExecutionCallback) context -> cluster.stop(),
            new ClusterInstanceParameterResolver(cluster));
    }
}
