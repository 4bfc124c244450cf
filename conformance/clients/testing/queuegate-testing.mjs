// A thin client of Queuegate for test suites in JavaScript: Node 20 or newer, no packages.
//
//   const gateway = await startGateway();
//   const account = new Account(gateway.url);
//   const sqs = new SQSClient(account.sdk());
//   ...
//   await account.reset();
//   await gateway.stop();
//
// `account.call(operationId, …)` has every function of /_admin/openapi.json; the others are shorter.

import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { createInterface } from "node:readline";

/** Returns the gateway of QUEUEGATE_URL, or starts one that ends with this process. */
export async function startGateway({ python = "python3", env = {} } = {}) {
  const url = process.env.QUEUEGATE_URL;
  if (url) return { url: url.replace(/\/+$/, ""), stop: async () => {} };
  const command = ["-m", "queuegate.testing", "--parent", String(process.pid)];
  const child = spawn(python, command, {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", resolve);
  });
  const lines = createInterface({ input: child.stdout });
  const line = once(lines, "line").then(([text]) => text);
  const first = await Promise.race([line, ended]);
  if (typeof first !== "string") throw new Error(`${python} ${command.join(" ")} ended with ${first}`);
  // It must not keep a finished suite from ending.
  child.unref();
  child.stdout.unref();
  return {
    url: JSON.parse(first).url,
    stop: async () => {
      child.kill();
      await ended;
    },
  };
}

/** The gateway refused a request; the message has its answer. */
export class RequestRefused extends Error {}

/** An account with a number of its own. */
export class Account {
  constructor(url, { accountId = String(randomInt(1e11, 2e11)), region = "us-east-1" } = {}) {
    this.url = url;
    this.accountId = accountId;
    this.region = region;
  }

  /** Options of a client of the AWS SDK. */
  sdk() {
    const credentials = { accessKeyId: this.accountId, secretAccessKey: "any" };
    return { endpoint: this.url, region: this.region, credentials };
  }

  /** Variables with which code that builds its own clients finds this account. */
  environment() {
    return {
      AWS_ENDPOINT_URL: this.url,
      AWS_ACCESS_KEY_ID: this.accountId,
      AWS_SECRET_ACCESS_KEY: "any",
      AWS_DEFAULT_REGION: this.region,
      AWS_REGION: this.region,
    };
  }

  /** Moves the clock of this account: {advance: "5m"}, {to: "2030-01-01T00:00:00Z"}, {freeze: true}. */
  moveClock(move) {
    return this.call("moveClock", { body: { account: this.accountId, ...move } });
  }

  /** Moves on, by a text such as "5m" or by seconds. */
  advance(span) {
    return this.moveClock(typeof span === "string" ? { advance: span } : { advance_seconds: span });
  }

  /** The account's present, a Date. */
  async now() {
    const clock = await this.call("getClock", { query: { account: this.accountId } });
    return new Date(clock.now);
  }

  /** Messages of SNS and schedules that were not sent; filters: protocol, destination, kind, … */
  async outbox(filters = {}) {
    return (await this.call("listOutbox", { query: { limit: 1000, ...filters } })).messages;
  }

  /** All messages of a queue, without receiving them. */
  async peek(queue) {
    const found = [];
    for (let after = ""; after !== null && after !== undefined; ) {
      const query = after ? `?${new URLSearchParams({ after })}` : "";
      const page = await this.#send("GET", `/v1/queues/${encodeURIComponent(queue)}/browse${query}`);
      found.push(...page.messages);
      after = page.next;
    }
    return found;
  }

  /** Deletes everything of this account, and puts its clock back. */
  reset() {
    return this.call("reset", { body: { account: this.accountId } });
  }

  /** Events, or waits for them: {kind: "deleted", queue: "orders", wait: 5, after: page.next}. */
  events(query = {}) {
    return this.call("listEvents", { query });
  }

  /** Adds a rule for requests of this account that fail on purpose; returns it with its id. */
  async addFault(rule) {
    const added = await this.call("addFaults", { body: { account: this.accountId, ...rule } });
    return added.faults[0];
  }

  /** Removes a rule. */
  removeFault({ id }) {
    return this.call("removeFault", { path: { fault_id: id } });
  }

  /** Saves this account with its messages under a name. */
  save(name) {
    return this.call("saveState", { path: { name } });
  }

  /** Puts this account back to a saved state. */
  load(name) {
    return this.call("loadState", { path: { name } });
  }

  /** Calls an operation of the gateway's document. */
  async call(operationId, { path = {}, query = {}, body } = {}) {
    const operation = (await operationsOf(this.url)).get(operationId);
    if (!operation) throw new RequestRefused(`${this.url} has no operation ${operationId}`);
    const text = new URLSearchParams(query).toString();
    const place = operation.path.replace(/{(\w+)}/g, (_, name) => encodeURIComponent(path[name]));
    return this.#send(operation.method, place + (text && `?${text}`), body);
  }

  async #send(method, path, body) {
    // Any signature is good for a gateway of tests: it names the account and the region.
    const scope = `${this.accountId}/20300101/${this.region}/sqs/aws4_request`;
    const authorization = `AWS4-HMAC-SHA256 Credential=${scope}, SignedHeaders=host, Signature=0`;
    const answer = await fetch(this.url + path, {
      method,
      headers: { authorization },
      body: body && JSON.stringify(body),
    });
    const text = await answer.text();
    if (!answer.ok) {
      throw new RequestRefused(`${method} ${this.url}${path}: ${answer.status} ${text.trim()}`);
    }
    return JSON.parse(text || "null");
  }
}

const documents = new Map();

/** Methods and paths of the gateway's document, by operationId; read once. */
function operationsOf(url) {
  if (!documents.has(url)) documents.set(url, readOperations(url));
  return documents.get(url);
}

async function readOperations(url) {
  const document = await (await fetch(`${url}/_admin/openapi.json`)).json();
  const found = new Map();
  for (const [path, methods] of Object.entries(document.paths)) {
    for (const [method, { operationId }] of Object.entries(methods)) {
      found.set(operationId, { method: method.toUpperCase(), path });
    }
  }
  return found;
}
