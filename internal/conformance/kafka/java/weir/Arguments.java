package weir;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.InvocationInterceptor;
import org.junit.jupiter.api.extension.LifecycleMethodExecutionExceptionHandler;
import org.junit.jupiter.api.extension.ReflectiveInvocationContext;
import org.opentest4j.TestAbortedException;

import java.lang.reflect.Method;

/** Aborts a case whose arguments, or whose method, ask for a feature that weir does not have. */
public final class Arguments implements InvocationInterceptor, LifecycleMethodExecutionExceptionHandler {
    /** Ignores that a case which was aborted has nothing to clean up. */
    @Override
    public void handleAfterEachMethodExecutionException(ExtensionContext context, Throwable error) throws Throwable {
        if (!(context.getExecutionException().orElse(null) instanceof TestAbortedException)) {
            throw error;
        }
    }

    @Override
    public void interceptTestMethod(Invocation<Void> invocation, ReflectiveInvocationContext<Method> call, ExtensionContext context) throws Throwable {
        proceedIfWeirCan(invocation, call);
    }

    @Override
    public void interceptTestTemplateMethod(Invocation<Void> invocation, ReflectiveInvocationContext<Method> call, ExtensionContext context) throws Throwable {
        proceedIfWeirCan(invocation, call);
    }

    private static void proceedIfWeirCan(Invocation<Void> invocation, ReflectiveInvocationContext<Method> call) throws Throwable {
        ObjectNode question = Control.question("can").put("method", call.getExecutable().getName());
        ObjectNode arguments = question.putObject("arguments");
        for (int i = 0; i < call.getArguments().size(); i++) {
            arguments.put(call.getExecutable().getParameters()[i].getName(), String.valueOf(call.getArguments().get(i)));
        }
        JsonNode answer = Control.ask(question);
        if (answer.hasNonNull("lacks")) {
            invocation.skip();
            throw new TestAbortedException(answer.get("lacks").asText());
        }
        invocation.proceed();
    }
}
