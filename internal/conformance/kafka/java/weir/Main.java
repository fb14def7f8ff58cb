package weir;

import com.fasterxml.jackson.databind.node.ObjectNode;

import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

import java.io.PrintWriter;
import java.io.StringWriter;

/**
 * Runs the tests of one class, or one method of it ({@code CLASS#METHOD}), and reports each case.
 * Its second argument is the time limit of a case, as JUnit writes it.
 */
public final class Main {
    private Main() {}

    public static void main(String[] args) {
        LauncherDiscoveryRequest request = LauncherDiscoveryRequestBuilder.request()
            .selectors(args[0].contains("#") ? methods(args[0]) : new org.junit.platform.engine.DiscoverySelector[] {DiscoverySelectors.selectClass(args[0])})
            .configurationParameter("junit.jupiter.extensions.autodetection.enabled", "true")
            .configurationParameter("junit.jupiter.execution.timeout.default", args[1])
            .build();
        LauncherFactory.create().execute(request, new Reporter());
        System.exit(0); // threads that a case left behind do not keep the process
    }

    private static org.junit.platform.engine.DiscoverySelector[] methods(String name) {
        String[] parts = name.split("#");
        try {
            return java.util.Arrays.stream(Class.forName(parts[0]).getDeclaredMethods())
                .filter(m -> m.getName().equals(parts[1]))
                .map(m -> DiscoverySelectors.selectMethod(m.getDeclaringClass(), m))
                .toArray(org.junit.platform.engine.DiscoverySelector[]::new);
        } catch (ClassNotFoundException e) {
            throw new IllegalArgumentException(e);
        }
    }

    private static final class Reporter implements TestExecutionListener {
        private long began;

        @Override
        public void executionStarted(TestIdentifier test) {
            began = System.nanoTime();
            if (test.isTest()) {
                Control.ask(named("began", test));
            }
        }

        @Override
        public void executionSkipped(TestIdentifier test, String reason) {
            Control.ask(named("ended", test).put("result", "skipped").put("reason", reason));
        }

        @Override
        public void executionFinished(TestIdentifier test, TestExecutionResult result) {
            Throwable error = result.getThrowable().orElse(null);
            boolean successful = result.getStatus() == TestExecutionResult.Status.SUCCESSFUL;
            if (!test.isTest() && successful) {
                return; // a class or a method, whose cases have been reported
            }
            ObjectNode line = named("ended", test)
                .put("result", result.getStatus().name().toLowerCase())
                .put("milliseconds", (System.nanoTime() - began) / 1_000_000);
            if (error != null) {
                line.put("reason", error instanceof org.opentest4j.TestAbortedException ? error.getMessage() : error.toString());
                StringWriter stack = new StringWriter();
                error.printStackTrace(new PrintWriter(stack));
                line.put("stack", stack.toString());
            }
            Control.ask(line);
        }

        private static ObjectNode named(String action, TestIdentifier test) {
            return Control.question(action).put("case", name(test)).put("isTest", test.isTest());
        }

        /** Begins with the name of the method, which JUnit leaves out of a case with arguments. */
        private static String name(TestIdentifier test) {
            String shown = test.getDisplayName();
            if (!(test.getSource().orElse(null) instanceof MethodSource source)) {
                return shown;
            }
            String method = source.getMethodName();
            if (shown.startsWith(method + "(")) {
                return method;
            }
            return shown.startsWith(method) ? shown : method + " " + shown;
        }
    }
}
