import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;

/** Tests of the client for Java; the argument is a Python that has the gateway. */
public final class QueuegateTestingTest {
    private QueuegateTestingTest() {}

    public static void main(String[] arguments) throws Exception {
        try (QueuegateTesting gateway = QueuegateTesting.start(arguments[0])) {
            QueuegateTesting.Account account = gateway.account();
            QueuegateTesting.Account other = gateway.account();
            create(account);
            for (int number = 0; number < 130; number++) {
                sqs(account, "/" + account.id() + "/orders?Action=SendMessage&DelaySeconds=600&MessageBody=order" + number);
            }
            String pages = String.join("", account.peek("orders"));
            check(pages.split("\"body\":\"order", -1).length == 131, "peek: " + pages);
            check(!receive(account).contains("<Body>"), "a delayed message was received");
            account.advance("10m");
            check(receive(account).contains("<Body>order"), "no message after 10 minutes");
            account.freeze(true);
            check(account.now().equals(account.now()), "a frozen clock moves");
            long ahead = Duration.between(other.now(), account.now()).toSeconds();
            check(Math.abs(ahead - 600) < 60, "ahead: " + ahead);
            check(account.outbox().contains("\"messages\":[]"), account.outbox());
            check(account.events("kind=sent&wait=1").contains("\"events\":[]"), "an event before the recording");
            sqs(account, "/" + account.id() + "/orders?Action=SendMessage&MessageBody=x");
            check(account.events("kind=sent&wait=30").contains("\"kind\":\"sent\""), "no event of a send");
            account.save("full");
            check(account.addFault("\"error\":\"Throttled\",\"count\":1").contains("\"fired\":0"), "no rule");
            refusedSend(account);
            account.removeFaults();
            create(other);
            account.reset();
            account.load("full");
            check(!account.peek("orders").isEmpty(), "the state is empty");
            refused(() -> account.load("none"), "404");
            refused(() -> account.seed("[]"), "not a seed");
            account.reset();
            other.peek("orders");
            refused(() -> account.peek("orders"), "404");
            refused(() -> account.advance("soon"), "is a duration");
        }
        System.out.println("Java: all is well");
    }

    private interface Request {
        void send() throws Exception;
    }

    private static void refused(Request request, String text) throws Exception {
        try {
            request.send();
        } catch (IOException refusal) {
            check(refusal.getMessage().contains(text), refusal.getMessage());
            return;
        }
        throw new AssertionError("not refused: " + text);
    }

    private static void create(QueuegateTesting.Account account) throws Exception {
        sqs(account, "/?Action=CreateQueue&QueueName=orders");
    }

    private static void refusedSend(QueuegateTesting.Account account) throws Exception {
        try {
            sqs(account, "/" + account.id() + "/orders?Action=SendMessage&MessageBody=x");
        } catch (AssertionError refusal) {
            check(refusal.getMessage().contains("Throttled"), refusal.getMessage());
            return;
        }
        throw new AssertionError("a fault was not met");
    }

    private static String receive(QueuegateTesting.Account account) throws Exception {
        return sqs(account, "/" + account.id() + "/orders?Action=ReceiveMessage");
    }

    private static String sqs(QueuegateTesting.Account account, String path) throws Exception {
        String scope = account.environment().get("AWS_ACCESS_KEY_ID") + "/20300101/us-east-1/sqs/aws4_request";
        HttpRequest request = HttpRequest.newBuilder(URI.create(account.url() + path))
                .header("Authorization", "AWS4-HMAC-SHA256 Credential=" + scope + ", SignedHeaders=host, Signature=0")
                .build();
        HttpResponse<String> answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        check(answer.statusCode() == 200, answer.body());
        return answer.body();
    }

    private static void check(boolean holds, String text) {
        if (!holds) {
            throw new AssertionError(text);
        }
    }
}
