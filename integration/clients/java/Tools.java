import java.io.*;
import java.lang.reflect.InvocationTargetException;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Kafka's command line tools one after the other, as each would run in a JVM of its own: a start of the JVM costs more
 * than what most of them do. What a tool keeps in statics, it finds anew each time; what it asks to be done at its end is done.
 *
 * On standard input, for each tool: the number of its arguments with the class as the first, each argument, and its standard
 * input. On standard output, for each: its status, its standard output, and its standard error. Numbers are 4 bytes, big-endian;
 * a text is its length in bytes and UTF-8. It ends with its input.
 */
public class Tools {
    /** Standard output or error of the tool that runs. */
    private static final class Printed extends OutputStream {
        private ByteArrayOutputStream text = new ByteArrayOutputStream();

        @Override public synchronized void write(int b) { text.write(b); }
        @Override public synchronized void write(byte[] b, int at, int n) { text.write(b, at, n); }

        synchronized byte[] take() {
            var was = text.toByteArray();
            text = new ByteArrayOutputStream();
            return was;
        }
    }

    /** Loads the tools' own classes anew, and leaves the libraries that they share to the parent. */
    private static final class Loader extends URLClassLoader {
        Loader(URL jar) { super(new URL[] {jar}, Tools.class.getClassLoader()); }

        @Override protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            synchronized (getClassLoadingLock(name)) {
                if (name.startsWith("org.apache.kafka.tools.")) {
                    var known = findLoadedClass(name);
                    if (known != null) return known;
                    try { return findClass(name); } catch (ClassNotFoundException e) { } // of another jar
                }
                return super.loadClass(name, resolve);
            }
        }
    }

    private static final Printed output = new Printed(), errors = new Printed();

    // Of the tool that runs.
    private static volatile CompletableFuture<Integer> status;
    private static final List<Runnable> hooks = Collections.synchronizedList(new ArrayList<>());

    public static void main(String[] none) throws Exception {
        var in = new DataInputStream(new BufferedInputStream(System.in));
        var out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)));
        System.setOut(new PrintStream(output, true));
        System.setErr(new PrintStream(errors, true));
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, run) -> hooks.add(run));
        var source = Class.forName("org.apache.kafka.tools.TopicCommand", false, Tools.class.getClassLoader()).getProtectionDomain().getCodeSource().getLocation();
        for (;;) {
            int n;
            try { n = in.readInt(); } catch (EOFException e) { break; }
            var args = new String[n];
            for (int i = 0; i < n; i++) args[i] = new String(text(in), StandardCharsets.UTF_8);
            System.setIn(new ByteArrayInputStream(text(in)));
            out.writeInt(run(source, args));
            for (var printed : List.of(output, errors)) {
                var bytes = printed.take();
                out.writeInt(bytes.length);
                out.write(bytes);
            }
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static byte[] text(DataInputStream in) throws IOException {
        var b = new byte[in.readInt()];
        in.readFully(b);
        return b;
    }

    /** As System.exit: whoever asks for the end goes on no further, and the others go on until it has come. */
    private static void end(int code) {
        status.complete(code);
        for (;;) {
            try { Thread.sleep(Long.MAX_VALUE); } catch (InterruptedException e) { }
        }
    }

    private static int run(URL source, String[] args) throws Exception {
        var ended = status = new CompletableFuture<Integer>();
        hooks.clear();
        var loader = new Loader(source);
        var group = new ThreadGroup(args[0]);
        var tool = new Thread(group, () -> {
            try {
                loader.loadClass(args[0]).getMethod("main", String[].class).invoke(null, (Object) Arrays.copyOfRange(args, 1, args.length));
                awaitOthers(group);
                ended.complete(0);
            } catch (InvocationTargetException e) {
                e.getCause().printStackTrace();
                ended.complete(1);
            } catch (Throwable e) {
                e.printStackTrace();
                ended.complete(1);
            }
        }, "main");
        tool.setDaemon(true);
        tool.setContextClassLoader(loader);
        tool.start();
        int code = ended.get();
        var last = new ArrayList<Thread>();
        for (var hook : List.copyOf(hooks)) last.add(new Thread(hook));
        for (var t : last) t.start();
        for (var t : last) t.join();
        return code;
    }

    /** A JVM goes on until the last thread has ended that is no daemon. */
    private static void awaitOthers(ThreadGroup group) throws InterruptedException {
        var all = new Thread[group.activeCount() + 16];
        for (int i = group.enumerate(all) - 1; i >= 0; i--) {
            if (all[i] != Thread.currentThread() && !all[i].isDaemon()) all[i].join();
        }
    }
}
