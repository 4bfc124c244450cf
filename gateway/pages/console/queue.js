// One queue: counts, charts, messages, attributes, subscriptions.

import { html, useRef, useState } from "/console/assets/vendor/preact.js";
import { aws, lastName, path, queueArn, rest, session } from "/console/assets/api.js";
import {
  Action, Chart, Empty, Facts, Failure, Field, Link, Scroll, Time, age, count, go, plain, rate, useLive,
  useSamples,
} from "/console/assets/parts.js";

const TABS = { messages: "Messages", charts: "Charts", attributes: "Attributes", subscriptions: "Subscriptions" };

async function loadQueue(name) {
  const members = { QueueUrl: name, AttributeNames: ["All"] };
  const [metrics, attributes, shown] = await Promise.all([
    rest("GET", `/v1/metrics?${new URLSearchParams({ channel: name })}`),
    aws("AmazonSQS.GetQueueAttributes", members),
    rest("GET", path`/v1/queues/${name}`),
  ]);
  return { metrics: metrics.channels[0], attributes: attributes.Attributes, shown };
}

export function QueueView({ name }) {
  const [queue, error, reload] = useLive(() => loadQueue(name), 2, [name]);
  const [tab, setTab] = useState(new URLSearchParams(location.search).get("tab") || "messages");
  const metrics = queue?.metrics;
  const samples = useSamples(metrics && [
    Date.parse(metrics.looked_at) / 1000, metrics.depth, metrics.in_flight, metrics.delayed,
    metrics.rates.published, metrics.rates.finished, metrics.oldest_age_seconds || 0,
  ]);
  const choose = (one) => {
    setTab(one);
    history.replaceState(null, "", `${location.pathname}?tab=${one}`);
  };
  if (!queue) return html`<h1>${name}</h1><${Failure} error=${error} />`;
  const policy = queue.attributes.RedrivePolicy && JSON.parse(queue.attributes.RedrivePolicy);
  return html`<div class="bar"><h1>${name} ${queue.shown.paused_at && html`<span class="tag bad">paused</span>`}</h1>
      <${SendMessage} name=${name} done=${reload} />
      <${PauseQueue} name=${name} isPaused=${Boolean(queue.shown.paused_at)} done=${reload} />
      <${Action} label="Purge" title=${`Purge ${name}`} danger confirm=${`Delete ${count(metrics.depth + metrics.in_flight + metrics.delayed)} messages`}
        run=${async () => { await rest("POST", path`/v1/queues/${name}/purge`); reload(); }}>
        <p>All messages are deleted, delayed ones and those in flight, too. This cannot be undone.</p><//>
      <${Action} label="Delete" title=${`Delete ${name}`} danger confirm="Delete the queue"
        run=${async () => { await rest("DELETE", path`/v1/queues/${name}`); go("/console/"); }}>
        <p>The queue and its messages are deleted. This cannot be undone.</p><//></div>
    <${Failure} error=${error} />
    <${Facts} of=${{
      Visible: count(metrics.depth), "In flight": count(metrics.in_flight), Delayed: count(metrics.delayed),
      Oldest: age(metrics.oldest_age_seconds), Sent: rate(metrics.rates.published),
      Finished: rate(metrics.rates.finished), "Dead letters": count(metrics.dead_letters),
    }} />
    <${Route} name=${name} policy=${policy} />
    <div class="tabs" role="tablist">${Object.entries(TABS).map(([one, label]) => html`
      <button role="tab" aria-selected=${one === tab} onClick=${() => choose(one)}>${label}</button>`)}</div>
    ${tab === "messages" && html`<${Messages} name=${name} />`}
    ${tab === "charts" && html`<${Charts} samples=${samples} />`}
    ${tab === "attributes" && html`<${Attributes} name=${name} attributes=${queue.attributes} />`}
    ${tab === "subscriptions" && html`<${Subscriptions} name=${name} />`}`;
}

// The way of dead letters: from the sources through this queue to its dead-letter queue.
function Route({ name, policy }) {
  const [sources, error] = useLive(async () =>
    (await aws("AmazonSQS.ListDeadLetterSourceQueues", { QueueUrl: name })).queueUrls.map((url) =>
      url.slice(url.lastIndexOf("/") + 1)), 0, [name]);
  const isTarget = sources && sources.length > 0;
  if (!policy && !isTarget) return html`<${Failure} error=${error} />`;
  const redrive = async ({ rate: most }) => {
    const members = { SourceArn: queueArn(name) };
    if (most) members.MaxNumberOfMessagesPerSecond = Number(most);
    await aws("AmazonSQS.StartMessageMoveTask", members);
  };
  return html`<div class="route" aria-label="Way of dead letters">
    ${isTarget && html`${sources.map((one) => html`<${Link} to=${path`/console/queues/${one}`}>${one}<//>`)}<b>→</b>`}
    <span class="here">${name}</span>
    ${policy && html`<b>after ${policy.maxReceiveCount} receives →</b>
      <${Link} to=${path`/console/queues/${lastName(policy.deadLetterTargetArn)}`}>${lastName(policy.deadLetterTargetArn)}<//>`}
    ${isTarget && html`<${Action} label="Redrive" title=${`Redrive ${name}`} confirm="Move them back" run=${redrive}>
      <p>All messages of ${name} move back to the queues that they came from.</p>
      <${Field} label="Messages a second at most; empty: no limit" name="rate" kind="number" min="1" max="500" /><//>`}
  </div>`;
}

function PauseQueue({ name, isPaused, done }) {
  const change = async () => {
    await rest(isPaused ? "DELETE" : "PUT", path`/v1/queues/${name}/pause`);
    done();
  };
  const label = isPaused ? "Resume" : "Pause";
  return html`<${Action} label=${label} title=${`${label} ${name}`} run=${change}>
    <p>${isPaused ? "Receives return messages again." : "Receives return nothing until the queue is resumed. Sends go on."}</p><//>`;
}

function SendMessage({ name, done }) {
  const isFifo = name.endsWith(".fifo");
  const send = async ({ body, delay, group, deduplication, attributes }) => {
    const members = { QueueUrl: name, MessageBody: body };
    if (delay && !isFifo) members.DelaySeconds = Number(delay);
    if (group) members.MessageGroupId = group;
    if (deduplication) members.MessageDeduplicationId = deduplication;
    const lines = attributes.split("\n").filter((line) => line.trim());
    if (lines.length) {
      members.MessageAttributes = Object.fromEntries(lines.map((line) => {
        const [key, ...value] = line.split("=");
        return [key.trim(), { DataType: "String", StringValue: value.join("=") }];
      }));
    }
    await aws("AmazonSQS.SendMessage", members);
    done();
  };
  return html`<${Action} label="Send a message" title=${`Send a message to ${name}`} confirm="Send" run=${send}>
    <${Field} label="Body" name="body" kind="area" required />
    <${Field} label="Attributes, one name=value a line" name="attributes" kind="area" />
    <${Field} label=${isFifo ? "Message group" : "Message group (optional)"} name="group" required=${isFifo} />
    ${isFifo ? html`<${Field} label="Deduplication id (needed without content-based deduplication)" name="deduplication" />`
      : html`<${Field} label="Delay in seconds" name="delay" kind="number" min="0" max="900" />`}<//>`;
}

function Charts({ samples }) {
  const column = (at) => samples.map((sample) => sample[at]);
  return html`<p>From the moment this page was opened, every two seconds.</p>
    <${Chart} title="Messages" times=${column(0)} lines=${[
      { label: "visible", values: column(1) }, { label: "in flight", values: column(2) },
      { label: "delayed", values: column(3) }]} />
    <${Chart} title="Messages a second" times=${column(0)} lines=${[
      { label: "sent", values: column(4) }, { label: "finished", values: column(5) }]} />
    <${Chart} title="Age of the oldest visible message in seconds" times=${column(0)} lines=${[
      { label: "age", values: column(6) }]} />`;
}

function Attributes({ name, attributes }) {
  const [tags] = useLive(async () => (await aws("AmazonSQS.ListQueueTags", { QueueUrl: name })).Tags || {}, 0, [name]);
  const { Policy, ...others } = attributes;
  return html`<${Scroll} label="Attributes"><table><tbody>${Object.entries(others).map(([key, value]) => html`
      <tr><th scope="row">${key}</th><td class="body">${/Timestamp$/.test(key) ? html`<${Time} at=${Number(value) * 1000} />` : value}</td></tr>`)}
      ${Object.entries(tags || {}).map(([key, value]) => html`<tr><th scope="row">Tag ${key}</th><td class="body">${value}</td></tr>`)}
    </tbody></table><//>
    ${Policy && html`<h2>Policy</h2><pre>${pretty(Policy)}</pre>`}`;
}

function Subscriptions({ name }) {
  const [found, error] = useLive(() => rest("GET", path`/v1/queues/${name}/subscriptions`), 5, [name]);
  return html`<${Failure} error=${error} />
    ${found && !found.length && html`<${Empty}>No topic and no routing key sends to this queue.<//>`}
    ${found?.length > 0 && html`<table><thead><tr><th scope="col">Topic or pattern</th><th scope="col">Raw</th><th scope="col">Filter policy</th></tr></thead>
      <tbody>${found.map((one) => html`<tr key=${one.id}><td>${one.pattern}</td><td>${one.raw ? "yes" : "no"}</td>
        <td class="body">${one.filter_policy ? JSON.stringify(one.filter_policy) : "–"}</td></tr>`)}</tbody></table>`}`;
}

const STATES = ["", "visible", "in_flight", "delayed"];
const PER_PAGE = 50;

function Messages({ name }) {
  const [filter, setFilter] = useState({ state: "", group: "", receives: "", text: "" });
  const [pages, setPages] = useState([""]);
  const [chosen, setChosen] = useState(null);
  const after = pages.at(-1);
  const [found, error, reload] = useLive(() => {
    const query = new URLSearchParams({ limit: PER_PAGE });
    if (after) query.set("after", after);
    if (filter.state) query.set("state", filter.state);
    if (filter.group) query.set("group_id", filter.group);
    if (filter.receives) query.set("min_receives", filter.receives);
    return rest("GET", `${path`/v1/queues/${name}/browse`}?${query}`);
  }, 3, [name, after, filter.state, filter.group, filter.receives]);
  const change = (key) => (event) => {
    setFilter({ ...filter, [key]: event.target.value });
    setPages([""]);
  };
  const messages = (found?.messages || []).filter((one) =>
    !filter.text || `${one.body}${JSON.stringify(one.message_attributes || {})}`.includes(filter.text));
  return html`<div class="bar">
      <label class="field"><span>State</span><select value=${filter.state} onChange=${change("state")}>
        ${STATES.map((one) => html`<option value=${one}>${one.replace("_", " ") || "any"}</option>`)}</select></label>
      <label class="field"><span>Group</span><input value=${filter.group} onChange=${change("group")} /></label>
      <label class="field"><span>Receives at least</span><input type="number" min="0" size="5" value=${filter.receives} onChange=${change("receives")} /></label>
      <label class="field"><span>Body or attribute contains (this page)</span><input type="search" value=${filter.text} onInput=${change("text")} /></label></div>
    <${Failure} error=${error} />
    ${found && !messages.length && html`<${Empty}><p>No message here.</p><p>${filter.text || filter.state || filter.group || filter.receives
      ? "Change the filter." : "Send one with the button above, or with any SDK."}</p><//>`}
    ${messages.length > 0 && html`<p>Browsing does not receive: nothing changes.</p>
      <${Scroll} label="Messages"><table><thead><tr><th scope="col">Sent</th><th scope="col">State</th><th scope="col" class="number">Receives</th>
        ${name.endsWith(".fifo") && html`<th scope="col">Group</th>`}<th scope="col">Body</th></tr></thead>
      <tbody>${messages.map((one) => html`<tr key=${one.message_id}>
        <td><button class="plain" onClick=${() => setChosen(one)}>
          <${Time} at=${one.attributes.SentTimestamp} /></button></td>
        <td><span class="tag">${one.state.replace("_", " ")}</span></td>
        <td class="number">${one.attributes.ApproximateReceiveCount}</td>
        ${name.endsWith(".fifo") && html`<td>${one.attributes.MessageGroupId}</td>`}
        <td class="body">${plain(one.body.slice(0, 200))}${one.body.length > 200 && "…"}</td></tr>`)}</tbody></table><//>`}
    <div class="bar">${pages.length > 1 && html`<button onClick=${() => setPages(pages.slice(0, -1))}>Earlier</button>`}
      ${found?.next && html`<button onClick=${() => setPages([...pages, found.next])}>Later messages</button>`}</div>
    ${chosen && html`<${OneMessage} key=${chosen.message_id} name=${name} message=${chosen}
      close=${() => { setChosen(null); reload(); }} />`}`;
}

const pretty = (text) => {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
};

function hex(text) {
  const bytes = new TextEncoder().encode(text).slice(0, 65536);
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = [...bytes.slice(at, at + 16)];
    const digits = part.map((one) => one.toString(16).padStart(2, "0")).join(" ");
    const signs = part.map((one) => (one >= 32 && one < 127 ? String.fromCharCode(one) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${signs}`);
  }
  return lines.join("\n");
}

// One message: body, attributes, and its story as far as its row tells it.
function OneMessage({ name, message, close }) {
  const json = pretty(message.body);
  const [form, setForm] = useState(json ? "JSON" : "text");
  const [error, setError] = useState(null);
  const [isAsked, setAsked] = useState(false);
  const place = path`/v1/queues/${name}/messages/${message.id}`;
  const act = (method, body) => async () => {
    try {
      await rest(method, place, body);
      close();
    } catch (failure) {
      setError(failure);
    }
  };
  const dialog = useRef(null);
  const show = (element) => {
    if (element && element !== dialog.current) {
      dialog.current = element;
      element.showModal();
    }
  };
  const sent = message.attributes;
  const shown = { JSON: json && plain(json), text: plain(message.body), hex: hex(message.body) }[form];
  return html`<dialog ref=${show} onClose=${close} aria-label="Message"><h2>${message.message_id}</h2>
    <${Facts} of=${{
      Sent: html`<${Time} at=${sent.SentTimestamp} />`, State: message.state.replace("_", " "),
      "Receive count": sent.ApproximateReceiveCount,
      "First receive": html`<${Time} at=${sent.ApproximateFirstReceiveTimestamp} />`,
      [message.state === "visible" ? "Visible since" : "Visible at"]: html`<${Time} at=${message.visible_at} />`,
      ...(sent.MessageGroupId && { Group: sent.MessageGroupId }),
      ...(sent.DeadLetterQueueSourceArn && { "Came from": lastName(sent.DeadLetterQueueSourceArn) }),
    }} />
    <div class="tabs">${["JSON", "text", "hex"].filter((one) => one !== "JSON" || json).map((one) => html`
      <button aria-pressed=${one === form} onClick=${() => setForm(one)}>${one}</button>`)}</div>
    <pre tabindex="0">${shown.length > 200000 ? `${shown.slice(0, 200000)}\n… ${count(shown.length - 200000)} more characters` : shown}</pre>
    ${Object.keys(message.message_attributes || {}).length > 0 && html`<h2>Attributes</h2><table><tbody>
      ${Object.entries(message.message_attributes).map(([key, one]) => html`<tr><th scope="row">${key}</th><td>${one.DataType}</td>
        <td class="body">${one.StringValue ?? one.BinaryValue}</td></tr>`)}</tbody></table>`}
    <${Failure} error=${error} />
    <div class="buttons">${!session.read_only && html`
      ${message.state === "in_flight" && html`<button onClick=${act("PATCH", { vt: 0 })}>Make it visible now</button>`}
      <button class="danger" onClick=${isAsked ? act("DELETE") : () => setAsked(true)}>
        ${isAsked ? "It cannot be undone: delete it" : "Delete this message"}</button>`}
      <button onClick=${() => dialog.current.close()}>Close</button></div></dialog>`;
}
