import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A thin client of Queuegate for test suites in Java: version 17 or newer, no libraries.
 *
 * <p>{@code try (var gateway = QueuegateTesting.start()) { var account = gateway.account(); }}. Answers are the JSON of
 * the gateway as text. Its document is at /_admin/openapi.json.
 */
public final class QueuegateTesting implements AutoCloseable {
    private static final Pattern URL = Pattern.compile("\"url\": *\"([^\"]+)\"");
    private static final Pattern NOW = Pattern.compile("\"now\":\"([^\"]+)\"");
    private static final Pattern NEXT = Pattern.compile("\"next\":\"([^\"]+)\"");
    private static final HttpClient HTTP = HttpClient.newHttpClient();

    private final Process process;
    private final String url;

    private QueuegateTesting(Process process, String url) {
        this.process = process;
        this.url = url;
    }

    /** Returns the gateway of QUEUEGATE_URL, or starts one that ends with this process. */
    public static QueuegateTesting start() throws IOException {
        String url = System.getenv("QUEUEGATE_URL");
        return url == null || url.isEmpty() ? start("python3") : new QueuegateTesting(null, url.replaceAll("/+$", ""));
    }

    /** Starts a gateway with this Python, which has the package queuegate. */
    public static QueuegateTesting start(String python) throws IOException {
        String parent = Long.toString(ProcessHandle.current().pid());
        List<String> command = List.of(python, "-m", "queuegate.testing", "--parent", parent);
        Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String line = process.inputReader().readLine();
        Matcher found = URL.matcher(line == null ? "" : line);
        if (!found.find()) {
            process.destroy();
            throw new IOException(String.join(" ", command) + " did not start");
        }
        return new QueuegateTesting(process, found.group(1));
    }

    public String url() {
        return url;
    }

    /** Returns an account with a number of its own. */
    public Account account() {
        return new Account(url, Long.toString(ThreadLocalRandom.current().nextLong(100_000_000_000L, 1_000_000_000_000L)));
    }

    @Override
    public void close() {
        if (process != null) {
            process.destroy();
            process.onExit().join();
        }
    }

    /** An account: the access key of clients is its id, with any secret key. */
    public record Account(String url, String id) {
        /** Variables with which code that builds its own clients finds this account. */
        public Map<String, String> environment() {
            return Map.of(
                    "AWS_ENDPOINT_URL", url, "AWS_ACCESS_KEY_ID", id, "AWS_SECRET_ACCESS_KEY", "any", "AWS_REGION", "us-east-1");
        }

        /** Moves the clock on by a text such as "5m" or "1h30m". */
        public String advance(String span) throws IOException, InterruptedException {
            return moveClock("\"advance\":\"" + span + "\"");
        }

        /** Stops the clock, or lets it run. */
        public String freeze(boolean stops) throws IOException, InterruptedException {
            return moveClock("\"freeze\":" + stops);
        }

        private String moveClock(String move) throws IOException, InterruptedException {
            return send("POST", "/_admin/clock", "{\"account\":\"" + id + "\"," + move + "}");
        }

        /** Returns the account's present. */
        public Instant now() throws IOException, InterruptedException {
            Matcher found = NOW.matcher(send("GET", "/_admin/clock?account=" + id, null));
            found.find();
            return java.time.OffsetDateTime.parse(found.group(1)).toInstant();
        }

        /** Returns pages of all messages of a queue, without receiving them. */
        public List<String> peek(String queue) throws IOException, InterruptedException {
            List<String> pages = new ArrayList<>();
            String path = "/v1/queues/" + encoded(queue) + "/browse";
            String after = "";
            while (after != null) {
                String page = send("GET", path + after, null);
                pages.add(page);
                Matcher next = NEXT.matcher(page);
                after = next.find() ? "?after=" + encoded(next.group(1)) : null;
            }
            return pages;
        }

        /** Returns messages of SNS and schedules that were not sent. */
        public String outbox() throws IOException, InterruptedException {
            return send("GET", "/_admin/outbox?limit=1000", null);
        }

        /** Deletes everything of this account, and puts its clock back. */
        public void reset() throws IOException, InterruptedException {
            send("POST", "/_admin/reset", "{\"account\":\"" + id + "\"}");
        }

        /** Returns a page of events, or waits for them: "kind=deleted&queue=orders&wait=5". */
        public String events(String query) throws IOException, InterruptedException {
            return send("GET", "/_admin/events" + (query.isEmpty() ? "" : "?" + query), null);
        }

        /** Adds a rule for requests of this account that fail on purpose; members such as "error":"Throttled". */
        public String addFault(String members) throws IOException, InterruptedException {
            return send("POST", "/_admin/faults", "{\"account\":\"" + id + "\"," + members + "}");
        }

        /** Removes the rules of all accounts. */
        public void removeFaults() throws IOException, InterruptedException {
            send("DELETE", "/_admin/faults", null);
        }

        /** Saves this account with its messages under a name. */
        public void save(String name) throws IOException, InterruptedException {
            send("PUT", "/_admin/states/" + encoded(name), null);
        }

        /** Puts this account back to a saved state. */
        public void load(String name) throws IOException, InterruptedException {
            send("POST", "/_admin/states/" + encoded(name), null);
        }

        /** Applies a seed, in JSON. */
        public String seed(String seed) throws IOException, InterruptedException {
            return send("POST", "/_admin/seed", seed);
        }

        private String send(String method, String path, String body) throws IOException, InterruptedException {
            // Any signature is good for a gateway of tests: it names the account and the region.
            String scope = id + "/20300101/us-east-1/sqs/aws4_request";
            HttpRequest request = HttpRequest.newBuilder(URI.create(url + path))
                    .header("Authorization", "AWS4-HMAC-SHA256 Credential=" + scope + ", SignedHeaders=host, Signature=0")
                    .method(
                            method,
                            body == null
                                    ? HttpRequest.BodyPublishers.noBody()
                                    : HttpRequest.BodyPublishers.ofString(body))
                    .build();
            HttpResponse<String> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() >= 300) {
                throw new IOException(method + " " + url + path + ": " + answer.statusCode() + " " + answer.body().strip());
            }
            return answer.body();
        }

        private static String encoded(String text) {
            return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
        }
    }
}
