// One queue: counts, charts, messages, attributes, subscriptions.

import { html, useRef, useState } from "/console/assets/vendor/preact.js";
import { aws, lastName, path, queueArn, rest, session } from "/console/assets/api.js";
import {
  Action, Chart, Empty, Facts, Failure, Field, Link, Rows, Scroll, Time, Turn, age, count, go, plain, rate, useAddress,
  useLive, useSamples, useStream,
} from "/console/assets/parts.js";

const TABS = {
  messages: "Messages", charts: "Charts", receivers: "Receivers", events: "Events", attributes: "Attributes",
  subscriptions: "Subscriptions",
};

async function loadQueue(name) {
  const members = { QueueUrl: name, AttributeNames: ["All"] };
  const [attributes, sources] = await Promise.all([
    aws("AmazonSQS.GetQueueAttributes", members),
    aws("AmazonSQS.ListDeadLetterSourceQueues", { QueueUrl: name }),
  ]);
  return { attributes: attributes.Attributes, sources: (sources.queueUrls || []).map((url) => url.slice(url.lastIndexOf("/") + 1)) };
}

export function QueueView({ name }) {
  const [page, broken] = useStream({ name });
  const [queue, error, reload] = useLive(() => loadQueue(name), 0, [name]);
  const [{ tab }, change] = useAddress({ tab: "messages" });
  const row = page?.row;
  const samples = useSamples(row && [
    page.at, row.visible, row.flight, row.delayed, row.sent, row.finished, row.oldest ? page.at - row.oldest : 0,
  ]);
  if (!queue || !row) return html`<h1>${name}</h1><${Failure} error=${error || broken} />`;
  const policy = queue.attributes.RedrivePolicy && JSON.parse(queue.attributes.RedrivePolicy);
  return html`<div class="bar"><h1>${name} ${row.paused ? html`<span class="tag bad">paused</span>` : ""}</h1>
      <${SendMessage} name=${name} done=${reload} />
      <${PauseQueue} name=${name} isPaused=${Boolean(row.paused)} done=${reload} />
      <${Action} label="Purge" title=${`Purge ${name}`} danger confirm=${`Delete ${count(row.visible + row.flight + row.delayed)} messages`}
        run=${async () => { await rest("POST", path`/v1/queues/${name}/purge`); reload(); }}>
        <p>All messages are deleted, delayed ones and those in flight, too. This cannot be undone.</p><//>
      <${Action} label="Delete" title=${`Delete ${name}`} danger confirm="Delete the queue"
        run=${async () => { await rest("DELETE", path`/v1/queues/${name}`); go("/console/"); }}>
        <p>The queue and its messages are deleted. This cannot be undone.</p><//></div>
    <${Failure} error=${error || broken} />
    <${Facts} of=${{
      Visible: count(row.visible), "In flight": count(row.flight), Delayed: count(row.delayed),
      Oldest: age(row.oldest && page.at - row.oldest), Sent: rate(row.sent), Finished: rate(row.finished),
      "Dead letters": count(row.dead), Waiting: count(row.waiting),
      "Last receive": row.read ? `${age(page.at - row.read)} ago` : "–",
    }} />
    <${Route} name=${name} policy=${policy} sources=${queue.sources} />
    <div class="tabs" role="tablist">${Object.entries(TABS).map(([one, label]) => html`
      <button role="tab" aria-selected=${one === tab} onClick=${() => change({ tab: one })}>${label}</button>`)}</div>
    ${tab === "messages" && html`<${Messages} name=${name} page=${page} isTarget=${queue.sources.length > 0} />`}
    ${tab === "receivers" && html`<${Receivers} page=${page} />`}
    ${tab === "events" && html`<${Events} query=${{ queue: name }} page=${page} />`}
    ${tab === "charts" && html`<${Charts} samples=${samples} name=${name} />`}
    ${tab === "attributes" && html`<${Attributes} name=${name} attributes=${queue.attributes} />`}
    ${tab === "subscriptions" && html`<${Subscriptions} name=${name} />`}`;
}

// The way of dead letters: from the sources through this queue to its dead-letter queue.
function Route({ name, policy, sources }) {
  const isTarget = sources.length > 0;
  if (!policy && !isTarget) return null;
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

// Receives that wait now, by key and address.
function Receivers({ page: { receivers, processes, elsewhere } }) {
  return html`${receivers.length > 0 ? html`<${Scroll} label="Receivers"><table><thead><tr><th scope="col">Key</th>
      <th scope="col">Address</th><th scope="col" class="number">Waits for</th></tr></thead>
      <tbody>${receivers.map(([key, address, left]) => html`<tr><td>${key || "–"}</td><td>${address || "–"}</td>
        <td class="number">${left === null ? "any time" : age(left)}</td></tr>`)}</tbody></table><//>`
    : html`<${Empty}>No receive waits here now. A receive waits if it has a wait time and finds nothing.<//>`}
    <p>Of ${count(processes)} ${processes > 1 ? "processes" : "process"} of this gateway${elsewhere &&
      ". Other processes use this database, and their receivers are not listed"}.</p>`;
}

// Events of the account since somebody switched their recording on, for one queue or message.
function Events({ query, page }) {
  const found = useRef({ events: [], next: "" });
  const [, error] = useLive(async () => {
    if (!page.recording) return;
    const { next } = found.current;
    const more = await rest("GET", `/_admin/events?${new URLSearchParams({ ...query, ...(next && { after: next }) })}`);
    found.current = { events: [...found.current.events, ...more.events].slice(-SHOWN_EVENTS), next: more.next };
  }, 0, [page.recording, page.at]);
  const change = (method) => () => rest(method, "/_admin/events");
  return html`<${Failure} error=${error} />
    ${page.recording ? html`<${Action} label="Stop recording" title="Stop recording events" run=${change("DELETE")}>
        <p>The events of the account ${session.account} are dropped.</p><//>`
    : html`<${Empty}><p>Events of this account are not recorded.</p>
      <${Action} label="Record events" title="Record events" run=${change("PUT")}>
        <p>The last 10,000 events of all queues and topics of the account ${session.account} are kept in memory until
          the recording is stopped. Requests take a little longer meanwhile.</p><//><//>`}
    ${page.recording && !found.current.events.length && html`<p>Nothing has happened since.</p>`}
    ${found.current.events.length > 0 && html`<${Rows} label="Events" of=${[...found.current.events].reverse()} />`}`;
}

function Charts({ samples, name }) {
  const [sample] = useLive(() => rest("GET", `${path`/v1/queues/${name}/browse`}?limit=${SAMPLED}`), 0, [name]);
  const receives = Map.groupBy(sample?.messages || [], (one) => one.attributes.ApproximateReceiveCount);
  const column = (at) => samples.map((sample) => sample[at]);
  return html`<p>From the moment this page was opened, every two seconds.</p>
    <${Chart} title="Messages" times=${column(0)} lines=${[
      { label: "visible", values: column(1) }, { label: "in flight", values: column(2) },
      { label: "delayed", values: column(3) }]} />
    <${Chart} title="Messages a second" times=${column(0)} lines=${[
      { label: "sent", values: column(4) }, { label: "finished", values: column(5) }]} />
    <${Chart} title="Age of the oldest message in seconds" times=${column(0)} lines=${[
      { label: "age", values: column(6) }]} />
    <h2>Receive counts</h2>
    ${sample && html`<p>Of the first ${count(sample.messages.length)} messages, when this tab was opened.</p><table><tbody>
      ${[...receives].sort(([one], [other]) => one - other).map(([number, { length }]) => html`<tr>
        <th scope="row">${number === "0" ? "Never received" : `Received ${number} times`}</th><td class="number">${count(length)}</td>
        <td><meter min="0" max=${sample.messages.length} value=${length} aria-label=${`Messages received ${number} times`}></meter></td>
      </tr>`)}</tbody></table>`}`;
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
const SHOWN_EVENTS = 200;
const SAMPLED = 200;
const MOST_CHOSEN = 1000;

const FILTER = { state: "", group: "", receives: "", most: "", older: "", text: "", attribute: "" };

// Return a page of messages that match a filter, and the place behind it.
function browse(name, filter, after) {
  const { text, attribute } = filter;
  const asked = {
    limit: PER_PAGE, after, state: filter.state, group_id: filter.group, min_receives: filter.receives, max_receives: filter.most,
    sent_until: filter.older && new Date(Date.now() - filter.older * 60000).toISOString(),
    text, attribute: attribute && (attribute.includes("=") ? attribute : `${attribute}=*`),
  };
  const given = Object.entries(asked).filter(([, value]) => value);
  return rest("GET", `${path`/v1/queues/${name}/browse`}?${new URLSearchParams(given)}`);
}

function Messages({ name, page, isTarget }) {
  const [filter, setFilter] = useAddress(FILTER);
  const [pages, setPages] = useState([""]);
  const [shown, setShown] = useState(null);
  const [chosen, setChosen] = useState(new Set());
  const wanted = Object.keys(FILTER).map((key) => filter[key]);
  // A search in bodies reads many messages, so it does not follow each change of the queue.
  const isSearch = filter.text || filter.attribute;
  const state = isSearch ? "" : JSON.stringify(page.row);
  const [found, error, reload] = useLive(() => browse(name, filter, pages.at(-1)), 0, [name, pages.at(-1), state, ...wanted]);
  const change = (key) => (event) => {
    setFilter({ [key]: event.target.value });
    setPages([""]);
  };
  const choose = (id) => () => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    setChosen(next);
  };
  const messages = found?.messages || [];
  const isFifo = name.endsWith(".fifo");
  const field = (key, label, more) => html`<label class="field"><span>${label}</span>
    <input value=${filter[key]} onChange=${change(key)} ...${more} /></label>`;
  const number = { type: "number", min: "0", style: "width: 7rem" };
  return html`<div class="bar">
      <label class="field"><span>State</span><select value=${filter.state} onChange=${change("state")}>
        ${STATES.map((one) => html`<option value=${one}>${one.replace("_", " ") || "any"}</option>`)}</select></label>
      ${field("text", "Body contains", { type: "search" })}${field("attribute", "Attribute, as kind=new*", { type: "search" })}
      ${field("group", "Group", { maxlength: 128 })}${field("receives", "Receives from", number)}${field("most", "to", number)}
      ${field("older", "Older than minutes", number)}</div>
    <${Failure} error=${error} />
    ${found && isSearch && html`<p>A search does not follow the queue, and reads at most 10,000 messages for a page.
      <button onClick=${reload}>Search again</button></p>`}
    ${found && !messages.length && html`<${Empty}><p>No message here.</p><p>${wanted.some(Boolean)
      ? `${found.next ? "Search later messages, or change" : "Change"} the filter.` : "Send one with the button above, or with any SDK."}</p><//>`}
    ${chosen.size > 0 && html`<div class="bar"><span>${count(chosen.size)} chosen</span>
      <${RedriveChosen} name=${name} chosen=${chosen} done=${reload} />
      <button onClick=${() => setChosen(new Set())}>Choose none</button></div>`}
    ${messages.length > 0 && html`<p>Browsing does not receive: nothing changes.</p>
      <${Scroll} label="Messages"><table><thead><tr>${isTarget && html`<th scope="col">
          <button class="plain" onClick=${() => setChosen(new Set(messages.map((one) => one.message_id)))}>Choose all</button></th>`}
        <th scope="col">Sent</th><th scope="col">State</th><th scope="col" class="number">Receives</th>
        ${isFifo && html`<th scope="col">Group</th>`}<th scope="col">Body</th></tr></thead>
      <tbody>${messages.map((one) => html`<tr key=${one.message_id}>
        ${isTarget && html`<td><input type="checkbox" aria-label=${`Choose ${one.message_id}`}
          checked=${chosen.has(one.message_id)} onChange=${choose(one.message_id)} /></td>`}
        <td><button class="plain" onClick=${() => setShown(one)}>
          <${Time} at=${one.attributes.SentTimestamp} /></button></td>
        <td><span class="tag">${one.state.replace("_", " ")}</span></td>
        <td class="number">${one.attributes.ApproximateReceiveCount}</td>
        ${isFifo && html`<td>${plain(one.attributes.MessageGroupId)}</td>`}
        <td class="body">${plain(one.body.slice(0, 200))}${one.body.length > 200 && "…"}</td></tr>`)}</tbody></table><//>`}
    <${Turn} pages=${pages} next=${found?.next} turn=${setPages} what="messages" />
    ${shown && html`<${OneMessage} key=${shown.message_id} name=${name} message=${shown} page=${page}
      close=${() => { setShown(null); reload(); }} />`}`;
}

// Move chosen dead letters back, at most so many a second, or count those that would move.
function RedriveChosen({ name, chosen, done }) {
  const redrive = async ({ rate: most, dry_run: isDry }) => {
    const ids = [...chosen].slice(0, MOST_CHOSEN);
    const total = { matched: 0, moved: 0, without_source: 0 };
    for (let at = 0; at < ids.length; at += Number(most) || ids.length) {
      if (at && !isDry) await new Promise((resolve) => { setTimeout(resolve, 1000); });
      const body = { message_ids: ids.slice(at, at + (Number(most) || ids.length)), dry_run: Boolean(isDry) };
      do {
        const part = await rest("POST", path`/v1/queues/${name}/redrives`, body);
        for (const key of Object.keys(total)) total[key] += part[key];
        Object.assign(body, { after: part.next, as_of: part.as_of });
      } while (body.after);
    }
    if (!isDry) done();
    return `${isDry ? "Would move" : "Moved"} ${isDry ? total.matched - total.without_source : total.moved} of ${ids.length}. ${
      total.without_source} have no source queue.`;
  };
  return html`<${Action} label="Redrive the chosen ones" title=${`Redrive ${chosen.size} messages`} confirm="Go" run=${redrive}>
    <p>They move back to the queues that they came from. Messages in flight stay.</p>
    <${Field} label="Messages a second at most; empty: all at once" name="rate" kind="number" min="1" max="500" />
    <label><input type="checkbox" name="dry_run" /> Only count them</label><//>`;
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
function OneMessage({ name, message, page, close }) {
  const json = pretty(message.body);
  const [form, setForm] = useState(json ? "JSON" : "text");
  const [error, setError] = useState(null);
  const [isAsked, setAsked] = useState(false);
  const [seconds, setSeconds] = useState("0");
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
      ...(sent.MessageGroupId && { Group: plain(sent.MessageGroupId) }),
      ...(sent.DeadLetterQueueSourceArn && { "Came from": lastName(sent.DeadLetterQueueSourceArn) }),
    }} />
    <div class="tabs">${["JSON", "text", "hex"].filter((one) => one !== "JSON" || json).map((one) => html`
      <button aria-pressed=${one === form} onClick=${() => setForm(one)}>${one}</button>`)}</div>
    <pre tabindex="0">${shown.length > 200000 ? `${shown.slice(0, 200000)}\n… ${count(shown.length - 200000)} more characters` : shown}</pre>
    ${Object.keys(message.message_attributes || {}).length > 0 && html`<h2>Attributes</h2><table><tbody>
      ${Object.entries(message.message_attributes).map(([key, one]) => html`<tr><th scope="row">${key}</th><td>${one.DataType}</td>
        <td class="body">${plain(one.StringValue ?? one.BinaryValue)}</td></tr>`)}</tbody></table>`}
    <h2>Events</h2><${Events} query=${{ message_id: message.message_id }} page=${page} />
    <${Failure} error=${error} />
    <div class="buttons">${!session.read_only && html`
      ${(message.state === "in_flight" || !name.endsWith(".fifo")) && html`<label>Visible in <input type="number" min="0"
          max="43200" style="width: 6rem" value=${seconds} onInput=${(event) => setSeconds(event.target.value)} /> s</label>
        <button onClick=${act("PATCH", { vt: Number(seconds) })}>Change visibility</button>`}
      <button class="danger" onClick=${isAsked ? act("DELETE") : () => setAsked(true)}>
        ${isAsked ? "It cannot be undone: delete it" : "Delete this message"}</button>`}
      <button onClick=${() => dialog.current.close()}>Close</button></div></dialog>`;
}
