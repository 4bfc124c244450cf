// What a web page does with push: it listens to a channel as events and over a WebSocket, goes
// offline, and comes back. `endpoint` is at the end of a cable that its own server can cut;
// `gateway` is the same gateway without it.

const asked = new URLSearchParams(location.search);
const endpoint = asked.get("endpoint");
const gateway = asked.get("gateway");

function expect(holds, what) {
  if (!holds) throw new Error(`expected otherwise: ${what}`);
}

async function until(holds, what) {
  for (let looks = 0; looks < 400; looks += 1) {
    if (holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`it did not come about: ${what()}`);
}

async function ask(path, body) {
  const answer = await fetch(gateway + path, { method: "POST", body: JSON.stringify(body) });
  expect(answer.ok, `${path}: ${answer.status}`);
  return answer.json();
}

const publish = (channel, payload) => ask("/v1/messages", { channel, payload });
const cable = (what) => fetch(`/cable/${what}`, { method: "POST" });
const payloads = (messages) => messages.map((one) => one.payload).join();

// What is pushed while the page is offline goes to a connection that nobody reads any more.
async function offline(channel, messages) {
  for (const payload of [1, 2, 3]) await publish(channel, payload);
  await until(() => messages.length === 3, () => payloads(messages));
  await cable("cut");
  await publish(channel, 4);
  await cable("mend");
  await until(() => messages.length === 4, () => payloads(messages));
  expect(payloads(messages) === "1,2,3,4", payloads(messages));
  expect(messages[3].deliveries === 2, `deliveries ${messages[3].deliveries}`);
}

const ofAListedPage = {
  async "EventSource goes offline and resumes"() {
    const channel = "page-events";
    const messages = [];
    const source = new EventSource(`${endpoint}/v1/messages/stream?channel=${channel}&api_key=me`);
    source.onmessage = (event) => messages.push(JSON.parse(event.data));
    await offline(channel, messages);
    const { results } = await ask("/v1/messages/ack", { channel, acks: messages.map((m) => m.ack) });
    expect(results.every((one) => one.result === "acknowledged"), JSON.stringify(results));
    source.close();
  },

  async "a WebSocket goes offline and resumes"() {
    const channel = "page-socket";
    const messages = [];
    const results = [];
    let socket = null;
    let event = "";
    let isOver = false;
    function connect() {
      const path = `/v1/messages/socket?channel=${channel}&last_event_id=${event}`;
      socket = new WebSocket(endpoint.replace("http", "ws") + path, ["queuegate", "key.me"]);
      socket.onmessage = ({ data }) => {
        const said = JSON.parse(data);
        if (said.type === "message") {
          messages.push(said);
          event = said.event;
        } else {
          results.push(said);
        }
      };
      socket.onclose = () => isOver || setTimeout(connect, 200);
    }
    connect();
    await offline(channel, messages);
    expect(socket.protocol === "queuegate", socket.protocol);
    socket.send(JSON.stringify({ ack: messages.map((one) => one.ack) }));
    await until(() => results.length === 1, () => JSON.stringify(results));
    const outcomes = results[0].results.map((one) => one.result).join();
    expect(outcomes === Array(4).fill("acknowledged").join(), outcomes);
    isOver = true;
    socket.close(1000, "bye");
  },
};

const ofAStranger = {
  async "opens no WebSocket"() {
    const socket = new WebSocket(`${endpoint.replace("http", "ws")}/v1/messages/socket?channel=a`);
    const seen = [];
    socket.onopen = () => seen.push("open");
    socket.onclose = ({ code }) => seen.push(code);
    await until(() => seen.length, () => "neither open nor closed");
    expect(seen.join() === "1006", seen);
  },
  async "reads no events"() {
    const source = new EventSource(`${endpoint}/v1/messages/stream?channel=a`);
    const seen = [];
    source.onopen = () => seen.push("open");
    source.onerror = () => seen.push("error");
    await until(() => seen.length, () => "neither open nor refused");
    expect(seen[0] === "error" && source.readyState === EventSource.CLOSED, seen);
  },
};

const outcomes = {};
for (const [name, check] of Object.entries(gateway ? ofAListedPage : ofAStranger)) {
  try {
    await check();
    outcomes[name] = "";
  } catch (error) {
    outcomes[name] = String(error);
  }
}
await fetch("/told", { method: "POST", body: JSON.stringify(outcomes) });
