import java.net.URI;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.SparkSession;
import software.amazon.awssdk.services.sns.SnsClient;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.model.DeleteMessageBatchRequestEntry;
import software.amazon.awssdk.services.sqs.model.Message;
import software.amazon.awssdk.services.sqs.model.SendMessageBatchRequestEntry;

/**
 * Sends to a queue and publishes to a topic, on the driver and in executors, then receives and
 * deletes in executors. Arguments: queue name, topic ARN, number of messages and, if it is not set
 * outside, the endpoint.
 */
public final class QueueJob {
  private static final int PARTITIONS = 4;

  private QueueJob() {}

  static SqsClient sqs(String endpoint) {
    var builder = SqsClient.builder();
    return endpoint == null ? builder.build() : builder.endpointOverride(URI.create(endpoint)).build();
  }

  static SnsClient sns(String endpoint) {
    var builder = SnsClient.builder();
    return endpoint == null ? builder.build() : builder.endpointOverride(URI.create(endpoint)).build();
  }

  /** Sends a partition in batches of ten. A client is made where it is used: it cannot be sent. */
  static void send(Iterator<Integer> numbers, String queueName, String endpoint) {
    try (SqsClient client = sqs(endpoint)) {
      String url = client.getQueueUrl(request -> request.queueName(queueName)).queueUrl();
      while (numbers.hasNext()) {
        List<SendMessageBatchRequestEntry> entries = new ArrayList<>();
        while (numbers.hasNext() && entries.size() < 10) {
          int number = numbers.next();
          entries.add(
              SendMessageBatchRequestEntry.builder()
                  .id(Integer.toString(number))
                  .messageBody("executor " + number)
                  .build());
        }
        var answer = client.sendMessageBatch(request -> request.queueUrl(url).entries(entries));
        if (!answer.failed().isEmpty()) {
          throw new IllegalStateException("not sent: " + answer.failed());
        }
      }
    }
  }

  /** Receives until nothing comes, deletes what it received, and returns the bodies. */
  static Iterator<String> drain(String queueName, String endpoint) {
    List<String> bodies = new ArrayList<>();
    try (SqsClient client = sqs(endpoint)) {
      String url = client.getQueueUrl(request -> request.queueName(queueName)).queueUrl();
      while (true) {
        List<Message> messages =
            client
                .receiveMessage(
                    request -> request.queueUrl(url).maxNumberOfMessages(10).waitTimeSeconds(1))
                .messages();
        if (messages.isEmpty()) {
          return bodies.iterator();
        }
        List<DeleteMessageBatchRequestEntry> entries = new ArrayList<>();
        for (Message message : messages) {
          bodies.add(message.body());
          entries.add(
              DeleteMessageBatchRequestEntry.builder()
                  .id(message.messageId())
                  .receiptHandle(message.receiptHandle())
                  .build());
        }
        client.deleteMessageBatch(request -> request.queueUrl(url).entries(entries));
      }
    }
  }

  static void publish(String topicArn, String text, String endpoint) {
    try (SnsClient client = sns(endpoint)) {
      client.publish(request -> request.topicArn(topicArn).message(text));
    }
  }

  static String run(JavaSparkContext context, String[] arguments) {
    String queueName = arguments[0];
    String topicArn = arguments[1];
    int count = Integer.parseInt(arguments[2]);
    String endpoint = arguments.length > 3 ? arguments[3] : null;

    try (SqsClient client = sqs(endpoint)) {
      String url = client.getQueueUrl(request -> request.queueName(queueName)).queueUrl();
      client.sendMessage(request -> request.queueUrl(url).messageBody("driver"));
    }
    publish(topicArn, "driver", endpoint);

    List<Integer> numbers = IntStream.range(0, count).boxed().collect(Collectors.toList());
    JavaRDD<Integer> parts = context.parallelize(numbers, PARTITIONS);
    parts.foreachPartition(part -> send(part, queueName, endpoint));
    parts.foreachPartition(part -> publish(topicArn, "executor", endpoint));

    JavaRDD<Integer> receivers = context.parallelize(List.of(0, 1), 2);
    List<String> bodies = receivers.mapPartitions(part -> drain(queueName, endpoint)).collect();
    return String.format(
        "{\"received\": %d, \"distinct\": %d, \"from_driver\": %b}",
        bodies.size(), new HashSet<>(bodies).size(), bodies.contains("driver"));
  }

  public static void main(String[] arguments) {
    SparkSession spark = SparkSession.builder().getOrCreate();
    System.out.println(run(new JavaSparkContext(spark.sparkContext()), arguments));
    spark.stop();
  }
}
