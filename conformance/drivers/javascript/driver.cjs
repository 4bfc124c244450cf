// Drives the AWS SDK for JavaScript (conformance/clients/README.md).

const { createInterface } = require("node:readline");

const packages = Object.fromEntries(
  ["sqs", "sns", "scheduler", "sts"].map((name) => [name, require(`@aws-sdk/client-${name}`)]),
);
const options = {
  endpoint: process.env.AWS_ENDPOINT_URL,
  region: process.env.AWS_DEFAULT_REGION,
  credentials: {
    accessKeyId: process.env.AWS_ACCESS_KEY_ID,
    secretAccessKey: process.env.AWS_SECRET_ACCESS_KEY,
    sessionToken: process.env.AWS_SESSION_TOKEN,
  },
  maxAttempts: Number(process.env.CONFORMANCE_ATTEMPTS ?? 1),
};
const clients = {
  sqs: new packages.sqs.SQSClient(options),
  sns: new packages.sns.SNSClient(options),
  scheduler: new packages.scheduler.SchedulerClient(options),
  sts: new packages.sts.STSClient(options),
};

function unmarked(name, value) {
  if (value?.$base64 !== undefined) return Uint8Array.from(Buffer.from(value.$base64, "base64"));
  return /^(Start|End)Date$/.test(name) ? new Date(value) : value;
}

function marked(name, value) {
  return value instanceof Uint8Array ? { $base64: Buffer.from(value).toString("base64") } : value;
}

async function answer(line) {
  const { service, action, members } = JSON.parse(line, unmarked);
  try {
    const command = new packages[service][`${action}Command`](members);
    const { $metadata, ...result } = await clients[service].send(command);
    return { result };
  } catch (error) {
    const status = error.$metadata?.httpStatusCode;
    if (status === undefined || error.$response === undefined) return { broken: `${error}` };
    // A service that has spoken Query has other codes than names of exceptions.
    const code = error.Code ?? error.Error?.Code ?? error.name;
    const exception = error.constructor.name.endsWith("ServiceException") ? null : error.name;
    return { refused: { code, text: error.message, status, exception } };
  }
}

function say(content) {
  console.log(JSON.stringify(content, marked));
}

async function main() {
  const { version } = require("@aws-sdk/client-sqs/package.json");
  say({ client: `JavaScript SDK ${version}`, protocol: "json", retries: true });
  for await (const line of createInterface({ input: process.stdin })) say(await answer(line));
}

main();
