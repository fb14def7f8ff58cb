/**
 * Runs Kafka's own integration tests against weir. The tests are the compiled classes that Kafka
 * publishes; nothing of them is here.
 *
 * <pre>
 * Go: internal/conformance      starts weir, its stores, and one JVM for each class of tests
 *        ^
 *        | {@link weir.Control}: lines of JSON
 *        v
 * {@link weir.Main}             runs the class with JUnit, and reports each case
 * {@link weir.Cluster}          what a case sees of the cluster that its annotation asks for
 * {@link weir.Internals}        stands for a broker's objects: a case that needs more of them than
 *                               any broker can show is aborted, and reported as such
 * {@link weir.Arguments}        aborts a case whose arguments ask for what weir does not have
 * </pre>
 *
 * Two classes take the place of Kafka's, and must come first on the class path:
 * {@link org.apache.kafka.common.test.junit.RaftClusterInvocationContext}, and for Kafka Streams
 * {@link org.apache.kafka.streams.integration.utils.EmbeddedKafkaCluster}.
 */
package weir;
