// Runs sns-validator, unchanged, over messages as a web hook got them.
//
// Reads lines of JSON: {"body": text, "hosts": regular expression or null for the package's own}.
// Answers each with a line: {"error": text or null}.
//
// PRIVATE_DNS=host:port is what a private DNS would do: whoever connects to AWS's host reaches that
// port of this machine instead. TLS, with the name in the certificate, stays as it is.
"use strict";

const https = require("https");
const readline = require("readline");
const tls = require("tls");
const MessageValidator = require("sns-validator");

const [host, port] = (process.env.PRIVATE_DNS || "").split(":");
const connect = https.globalAgent.createConnection;
https.globalAgent.createConnection = function (options, connected) {
  if (options.host !== host) {
    return connect.call(this, options, connected);
  }
  const there = { host: "127.0.0.1", port: Number(port), servername: host };
  return tls.connect({ ...options, ...there }, connected);
};

function validate({ body, hosts }) {
  const validator = hosts === null ? new MessageValidator() : new MessageValidator(new RegExp(hosts));
  return new Promise((resolve) => {
    validator.validate(body, (error) => resolve({ error: error ? error.message : null }));
  });
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await validate(JSON.parse(line))));
  }
  https.globalAgent.destroy();
}

main();
