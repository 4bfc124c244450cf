// Requests to the APIs of this gateway, and the session of the page.

export const session = {
  account: "", accounts: {}, administrator: false, csrf: null, ephemeral: false,
  needs_key: false, read_only: false, region: "", version: "",
};
// The account and region of the key, or of the gateway where it needs none.
const home = { account: "", region: "" };

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
  Object.assign(home, { account: session.account, region: session.region });
  const stored = !session.needs_key && !location.hash && localStorage.getItem(STORED_ACCOUNT);
  if (stored) choosePlace(stored, session.region); else readPlace();
}

// Addresses that can be shared end in #account/region, unless both are those of the key.
export const placeHash = ({ account, region } = session) => (account === home.account && region === home.region
  ? "" : `#${account}/${region}`);

export function readPlace() {
  const found = /^#(\d{12})\/([a-z0-9-]{1,64})$/.exec(location.hash);
  // Another hash is a part of the page, as that of the link to its content.
  if (!session.account || (location.hash && !found)) return;
  Object.assign(session, found ? { account: found[1], region: found[2] } : home);
}

export function choosePlace(account, region) {
  if (!session.needs_key) localStorage.setItem(STORED_ACCOUNT, account);
  Object.assign(session, { account, region });
  history.replaceState(null, "", `${location.pathname}${location.search}${placeHash()}`);
}

// The regions to choose from in the present account.
export const regions = () => [
  ...new Set([home.region, session.region, ...(session.accounts[session.account] || [])])].sort();

export async function signIn(key, secret) {
  const headers = { "content-type": "application/json" };
  await read(await fetch("/console/session", { method: "POST", headers, body: JSON.stringify({ key, secret }) }));
  await loadSession();
}

export async function signOut() {
  await fetch("/console/session", { method: "DELETE" });
  await loadSession();
}

function credentials() {
  const { account, region } = session;
  if (session.needs_key) {
    return { "x-csrf-token": session.csrf || "", ...(placeHash() && { "x-queuegate-place": `${account}/${region}` }) };
  }
  // Where the APIs verify nothing, 12 digits select the account, and the scope of a signature the region.
  if (region === home.region) return { authorization: `Bearer ${account}` };
  const scope = `Credential=${account}/20300101/${region}/sqs/aws4_request`;
  return { authorization: `AWS4-HMAC-SHA256 ${scope}, SignedHeaders=host, Signature=${"0".repeat(64)}` };
}

// Follow the stream of live figures, until it ends: call `use` with what each event says.
export async function follow(query, signal, use) {
  const answer = await fetch(`/console/stream?${query}`, { headers: credentials(), signal });
  if (!answer.ok) await read(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) if (event.startsWith("data: ")) use(JSON.parse(event.slice(6)));
  }
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

// Return [content, path of the next page] of a list; an empty path ends it.
export async function listed(path) {
  const answer = await fetch(path, { headers: credentials() });
  return [await read(answer), /<([^>]*)>; rel="next"/.exec(answer.headers.get("link"))?.[1] || ""];
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
