import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.List;

/**
 * Java's own HTTP client, as it comes: on a connection without TLS it offers HTTP/2 with every
 * request (Upgrade: h2c), and expects the body to be read all the same.
 *
 * Run with `java Requests.java ENDPOINT KEY`. Prints a line for each request, and ends with 1 if one of
 * them was not answered as it should be.
 */
public class Requests {
    private static final String SQS = "application/x-amz-json-1.0";
    private static final String FORM = "application/x-www-form-urlencoded";
    private static final String REST = "application/json";

    private final HttpClient client = HttpClient.newHttpClient();
    private final String endpoint;
    private final String key;
    private int failures = 0;

    private Requests(String endpoint, String key) {
        this.endpoint = endpoint;
        this.key = key;
    }

    public static void main(String[] arguments) throws Exception {
        Requests requests = new Requests(arguments[0], arguments[1]);
        requests.run();
        System.exit(requests.failures == 0 ? 0 : 1);
    }

    private void run() throws Exception {
        String url = "\"QueueUrl\":\"" + endpoint + "/000000000000/java-http\"";
        sqs("CreateQueue", "{\"QueueName\":\"java-http\"}", "\"QueueUrl\"");
        // More than once on one connection: what follows a request must not be read as its body.
        for (String text : List.of("first", "second")) {
            sqs("SendMessage", "{" + url + ",\"MessageBody\":\"" + text + "\"}", "\"MessageId\"");
        }
        String long_text = "x".repeat(200_000);
        sqs("SendMessage", "{" + url + ",\"MessageBody\":\"" + long_text + "\"}", "\"MessageId\"");
        sqs("ReceiveMessage", "{" + url + ",\"MaxNumberOfMessages\":10}", "first");
        String form = "Action=ListQueues&QueueNamePrefix=java-http";
        post("query ListQueues", "/", form, FORM, null, 200, "java-http");
        post("/v1 create", "/v1/queues", "{\"name\":\"java-rest\"}", REST, null, 201, "java-rest");
        String message = "{\"message\":{\"image\":7}}";
        post("/v1 send", "/v1/queues/java-rest/messages", message, REST, null, 201, "\"id\"");
        HttpRequest.Builder get = request("/v1/queues/java-rest/messages?max=10").GET();
        check("/v1 receive", get.build(), 200, "image");
    }

    private void sqs(String action, String body, String expected) throws Exception {
        post("sqs " + action, "/", body, SQS, "AmazonSQS." + action, 200, expected);
    }

    private void post(
            String name, String path, String body, String type, String target, int status,
            String expected) throws Exception {
        HttpRequest.Builder request = request(path).header("Content-Type", type);
        if (target != null) {
            request.header("X-Amz-Target", target);
        }
        HttpRequest.BodyPublisher content = HttpRequest.BodyPublishers.ofString(body);
        check(name, request.POST(content).build(), status, expected);
    }

    private HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(URI.create(endpoint + path))
                .header("Authorization", "Bearer " + key);
    }

    private void check(String name, HttpRequest request, int status, String expected)
            throws Exception {
        HttpResponse<String> answer =
                client.send(request, HttpResponse.BodyHandlers.ofString());
        boolean isRight = answer.statusCode() == status && answer.body().contains(expected);
        if (!isRight) {
            failures++;
        }
        String verdict = isRight ? "ok" : "FAILED: " + answer.statusCode() + " " + answer.body();
        System.out.println("java.net.http  " + name + "  " + verdict);
    }
}
