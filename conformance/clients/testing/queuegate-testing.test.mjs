import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Account, RequestRefused, startGateway } from "./queuegate-testing.mjs";

let gateway;

before(async () => {
  gateway = await startGateway({ python: process.env.PYTHON });
});

after(() => gateway.stop());

/** Sends an action of SQS as any client does. */
async function sqs(account, action, members) {
  const scope = `${account.accountId}/20300101/us-east-1/sqs/aws4_request`;
  const answer = await fetch(account.url, {
    method: "POST",
    headers: {
      authorization: `AWS4-HMAC-SHA256 Credential=${scope}, SignedHeaders=host, Signature=0`,
      "content-type": "application/x-amz-json-1.0",
      "x-amz-target": `AmazonSQS.${action}`,
    },
    body: JSON.stringify(members),
  });
  assert.equal(answer.status, 200);
  return answer.json();
}

test("an account has its own queues, and time passes at once", async () => {
  const [account, other] = [new Account(gateway.url), new Account(gateway.url)];
  const { QueueUrl } = await sqs(account, "CreateQueue", { QueueName: "orders" });
  assert.equal(QueueUrl, `${gateway.url}/${account.accountId}/orders`);
  await sqs(account, "SendMessage", { QueueUrl, MessageBody: "order 42", DelaySeconds: 600 });
  assert.deepEqual((await account.peek("orders")).map((one) => [one.body, one.state]), [
    ["order 42", "delayed"],
  ]);
  await account.advance("10m");
  const { Messages } = await sqs(account, "ReceiveMessage", { QueueUrl });
  assert.equal(Messages[0].Body, "order 42");
  const ahead = (await account.now()) - (await other.now());
  assert.ok(Math.abs(ahead - 600_000) < 60_000, `${ahead} ms`);
  await assert.rejects(other.peek("orders"), RequestRefused);
});

test("peek reads more than a page", async () => {
  const account = new Account(gateway.url);
  const { QueueUrl } = await sqs(account, "CreateQueue", { QueueName: "orders" });
  for (let sent = 0; sent < 130; sent += 10) {
    const Entries = Array.from({ length: 10 }, (_, n) => ({ Id: `${n}`, MessageBody: `${sent + n}` }));
    await sqs(account, "SendMessageBatch", { QueueUrl, Entries });
  }
  assert.equal(new Set((await account.peek("orders")).map((one) => one.body)).size, 130);
});

test("a reset leaves nothing", async () => {
  const account = new Account(gateway.url);
  await sqs(account, "CreateQueue", { QueueName: "orders" });
  assert.deepEqual(await account.outbox({ protocol: "sms" }), []);
  await account.reset();
  await assert.rejects(account.peek("orders"), /404/);
});

test("events are awaited, and faults are met", async () => {
  const account = new Account(gateway.url);
  const { QueueUrl } = await sqs(account, "CreateQueue", { QueueName: "orders" });
  const { next } = await account.events();
  const waiting = account.events({ kind: "sent", queue: "orders", wait: 30, after: next });
  await sqs(account, "SendMessage", { QueueUrl, MessageBody: "x" });
  assert.equal((await waiting).events[0].queue, "orders");
  const rule = await account.addFault({ operation: "SendMessage", error: "Throttled", count: 1 });
  await assert.rejects(sqs(account, "SendMessage", { QueueUrl, MessageBody: "x" }));
  await sqs(account, "SendMessage", { QueueUrl, MessageBody: "x" });
  assert.deepEqual(await account.removeFault(rule), { removed: 1 });
  await assert.rejects(account.removeFault(rule), /404/);
});

test("a saved state comes back", async () => {
  const account = new Account(gateway.url);
  await sqs(account, "CreateQueue", { QueueName: "orders" });
  await assert.rejects(account.save("a/b"), /400/);
  await account.save("one-queue");
  await account.reset();
  await account.load("one-queue");
  assert.deepEqual(await account.peek("orders"), []);
  const exported = await account.call("exportSeed");
  assert.deepEqual(exported.resources.map((one) => one.name), ["orders"]);
  await assert.rejects(account.call("noSuchOperation"), RequestRefused);
});

test("a mistake has the answer of the gateway", async () => {
  const account = new Account(gateway.url);
  await assert.rejects(account.advance("soon"), /400 .*"advance\\" is a duration/);
  await assert.rejects(startGateway({ python: "no-such-python" }), /ENOENT/);
});
