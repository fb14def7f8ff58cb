package weir;

import org.opentest4j.TestAbortedException;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;

/**
 * Stands for an object inside a broker of Kafka. What {@code known} has as a method of the same
 * name and parameters is answered by it. Every other call aborts the case: it looks at what no
 * client can see.
 */
final class Internals implements InvocationHandler {
    /** What aborts a case. */
    static final class Touched extends TestAbortedException {
        Touched(String what) {
            super("broker internals: " + what);
        }
    }

    private final String name;
    private final Object known;

    private Internals(String name, Object known) {
        this.name = name;
        this.known = known;
    }

    static <T> T of(Class<T> type, Object known) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, new Internals(type.getSimpleName(), known)));
    }

    @Override
    public Object invoke(Object proxy, Method method, Object[] args) throws Throwable {
        if (method.getDeclaringClass() == Object.class) {
            return method.invoke(this, args);
        }
        try {
            return known.getClass().getMethod(method.getName(), method.getParameterTypes()).invoke(known, args);
        } catch (NoSuchMethodException e) {
            throw Cluster.touched(name + "." + method.getName());
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
    }

    @Override
    public boolean equals(Object other) {
        return other != null && Proxy.isProxyClass(other.getClass()) && Proxy.getInvocationHandler(other) == this;
    }

    @Override
    public int hashCode() {
        return System.identityHashCode(this);
    }

    @Override
    public String toString() {
        return name + " of weir";
    }
}
