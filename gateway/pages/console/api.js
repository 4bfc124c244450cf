// Requests to the APIs of this gateway, and the session of the page.

export const session = {
  account: "", accounts: [], administrator: false, csrf: null, ephemeral: false,
  needs_key: false, read_only: false, region: "", version: "",
};

// A refusal or a failed request, with the text of the API.
export class ApiError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

const STORED_ACCOUNT = "queuegate.account";

export async function loadSession() {
  Object.assign(session, await read(await fetch("/console/session")));
  if (!session.needs_key) {
    session.account = localStorage.getItem(STORED_ACCOUNT) || session.account;
  }
}

export function chooseAccount(account) {
  localStorage.setItem(STORED_ACCOUNT, account);
  session.account = account;
}

export async function signIn(key) {
  const headers = { "content-type": "application/json" };
  await read(await fetch("/console/session", { method: "POST", headers, body: JSON.stringify({ key }) }));
  await loadSession();
}

export async function signOut() {
  await fetch("/console/session", { method: "DELETE" });
  await loadSession();
}

function credentials() {
  // Where the APIs verify nothing, a token of 12 digits selects the account.
  return session.needs_key
    ? { "x-csrf-token": session.csrf || "" }
    : { authorization: `Bearer ${session.account}` };
}

async function read(answer) {
  const text = await answer.text();
  let content = text;
  try {
    content = text ? JSON.parse(text) : null;
  } catch {
    // Probes answer with plain text.
  }
  if (answer.ok) return content;
  const said = content && (content.error || content.message || content.Message || content.detail);
  throw new ApiError(answer.status, typeof said === "string" ? said : `${answer.status}: ${text.slice(0, 300)}`);
}

// Send a request to a native API; return the decoded answer, or null without one.
export async function rest(method, path, body) {
  const headers = credentials();
  if (body !== undefined) headers["content-type"] = "application/json";
  const options = { method, headers, body: body === undefined ? undefined : JSON.stringify(body) };
  return read(await fetch(path, options));
}

// Call an action of SQS or SNS, as `AmazonSQS.SendMessage`.
export async function aws(action, members = {}) {
  const headers = {
    ...credentials(), "content-type": "application/x-amz-json-1.0", "x-amz-target": action,
  };
  return read(await fetch("/", { method: "POST", headers, body: JSON.stringify(members) }));
}

// Return the path of a resource, with its names escaped.
export function path(strings, ...names) {
  return strings.reduce((all, text, at) => all + encodeURIComponent(names[at - 1]) + text);
}

export const queueArn = (name) => `arn:aws:sqs:${session.region}:${session.account}:${name}`;
export const topicArn = (name) => `arn:aws:sns:${session.region}:${session.account}:${name}`;
export const lastName = (arn) => arn.slice(arn.lastIndexOf(":") + 1);
