// What a web page does with the AWS SDK for JavaScript: one that may ask the gateway, and one that
// may not. The address of the page says which it is; it tells its own server how each check went.

import { CreateTopicCommand, PublishCommand, SNSClient, SubscribeCommand } from "@aws-sdk/client-sns";
import {
  CreateQueueCommand,
  DeleteMessageCommand,
  GetQueueAttributesCommand,
  GetQueueUrlCommand,
  ReceiveMessageCommand,
  SendMessageCommand,
  SQSClient,
} from "@aws-sdk/client-sqs";

const asked = new URLSearchParams(location.search);
const endpoint = asked.get("endpoint");
const options = {
  endpoint,
  region: "us-east-1",
  credentials: { accessKeyId: "123456789012", secretAccessKey: "any" },
  maxAttempts: 1,
};
const sqs = new SQSClient(options);
const sns = new SNSClient(options);

function expect(holds, what) {
  if (!holds) throw new Error(`expected otherwise: ${what}`);
}

async function refusal(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("nothing was refused");
}

async function received(QueueUrl) {
  const { Messages } = await sqs.send(new ReceiveMessageCommand({ QueueUrl, WaitTimeSeconds: 10 }));
  await sqs.send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: Messages[0].ReceiptHandle }));
  return Messages[0];
}

const ofAListedPage = {
  async "sends, receives and deletes"() {
    const { QueueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: "of-a-page" }));
    // Twice: the second one needs no preflight.
    for (const MessageBody of ["zażółć <&> 😀", "again"]) {
      const sent = await sqs.send(new SendMessageCommand({ QueueUrl, MessageBody }));
      expect(sent.$metadata.requestId, "the id of the request");
      const message = await received(QueueUrl);
      expect(message.Body === MessageBody, message.Body);
      expect(message.MessageId === sent.MessageId, message.MessageId);
    }
  },
  async "asks at the address of a queue"() {
    const { QueueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: "of-a-path" }));
    const form = new URLSearchParams({ Action: "SendMessage", MessageBody: "b" });
    const headers = { authorization: "any", "x-my-own": "header" };
    const answer = await fetch(QueueUrl, { method: "POST", body: form, headers });
    expect(answer.ok, answer.status);
    expect((await received(QueueUrl)).Body === "b", "the message");
  },
  async "publishes to a topic"() {
    const { TopicArn } = await sns.send(new CreateTopicCommand({ Name: "of-a-page" }));
    const { QueueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: "subscribed" }));
    const { Attributes } = await sqs.send(
      new GetQueueAttributesCommand({ QueueUrl, AttributeNames: ["QueueArn"] }),
    );
    const Endpoint = Attributes.QueueArn;
    await sns.send(new SubscribeCommand({ TopicArn, Protocol: "sqs", Endpoint }));
    await sns.send(new PublishCommand({ TopicArn, Message: "news" }));
    expect(JSON.parse((await received(QueueUrl)).Body).Message === "news", "the message");
  },
  async "reads refusals"() {
    const error = await refusal(sqs.send(new GetQueueUrlCommand({ QueueName: "none" })));
    expect(error.name === "QueueDoesNotExist", `${error}`);
    expect(error.$metadata.httpStatusCode === 400, error.$metadata.httpStatusCode);
    expect(error.$metadata.requestId, "the id of the request");
  },
  async "reads that a body is too large"() {
    const headers = { authorization: "any", "x-amz-target": "AmazonSQS.SendMessage" };
    const body = new Uint8Array(16_000_000);
    const answer = await fetch(endpoint, { method: "POST", headers, body });
    expect(answer.status === 413, answer.status);
    expect((await answer.text()).includes("larger than"), "the reason");
  },
  async "uses the native API"() {
    const headers = { authorization: "any", "content-type": "application/json" };
    const at = `${endpoint}/v1/queues`;
    const body = JSON.stringify({ name: "native" });
    const made = await fetch(at, { method: "POST", headers, body });
    expect(made.status === 201, made.status);
    expect(made.headers.get("x-request-id"), "the id of the request");
    const gone = await fetch(`${at}/native`, { method: "DELETE", headers });
    expect(gone.ok, gone.status);
  },
  async "reads the pages of operators"() {
    for (const path of ["/livez", "/readyz", "/metrics", "/v1/openapi.json"]) {
      const answer = await fetch(endpoint + path);
      expect(answer.ok && (await answer.text()), path);
    }
  },
};

// Its gateway wants no credentials: nothing but where the page comes from stops these.
const target = asked.get("queue");

const ofAStranger = {
  async "cannot use the SDK"() {
    const command = new SendMessageCommand({ QueueUrl: target, MessageBody: "by the SDK" });
    const error = await refusal(sqs.send(command));
    expect(!error.$metadata?.httpStatusCode, `an answer: ${error}`);
  },
  async "reads nothing"() {
    for (const path of ["/", "/livez", "/v1/queues", "/v1/openapi.json"]) {
      expect((await refusal(fetch(endpoint + path))) instanceof TypeError, path);
    }
  },
  async "sends nothing without looking at the answer"() {
    const form = new URLSearchParams({ Action: "SendMessage", MessageBody: "by a form" });
    await fetch(target, { method: "POST", mode: "no-cors", body: form });
    await fetch(`${target}?${form}`, { mode: "no-cors" });
    navigator.sendBeacon(target, form);
    const image = new Image();
    await new Promise((done) => {
      image.onload = image.onerror = done;
      image.src = `${target}?${form}`;
    });
  },
};

const outcomes = {};
const checks = asked.has("queue") ? ofAStranger : ofAListedPage;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    outcomes[name] = "";
  } catch (error) {
    outcomes[name] = `${error.name}: ${error.message}`;
  }
}
await fetch("/told", { method: "POST", body: JSON.stringify(outcomes) });
