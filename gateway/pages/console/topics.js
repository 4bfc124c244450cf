// Topics: subscriptions, trials of their filter policies, deliveries to web hooks, and the outbox.

import { html, useState } from "/console/assets/vendor/preact.js";
import { aws, listed, path, rest, session, topicArn } from "/console/assets/api.js";
import {
  Action, Empty, Facts, Failure, Field, Link, Scroll, Time, Turn, count, go, plain, useAnswer, useLive,
} from "/console/assets/parts.js";

export function OneTopic({ name }) {
  const [topic, error, reload] = useLive(() => rest("GET", path`/v1/topics/${name}`), 3, [name]);
  const [pages, setPages] = useState([`${path`/v1/topics/${name}/subscriptions`}?limit=50`]);
  const [[subscriptions, next] = [], subscriptionError] = useLive(() => listed(pages.at(-1)), 5, [pages.at(-1)]);
  const pause = async () => {
    await rest(topic.paused_at ? "DELETE" : "PUT", path`/v1/topics/${name}/pause`);
    reload();
  };
  const remove = async () => {
    await aws("AmazonSNS.DeleteTopic", { TopicArn: topicArn(name) });
    go("/console/topics");
  };
  const label = topic?.paused_at ? "Resume" : "Pause";
  return html`<div class="bar"><h1>${name} ${topic?.paused_at && html`<span class="tag bad">paused</span>`}</h1>
      <${Publish} name=${name} />
      <${Action} label=${label} title=${`${label} ${name}`} run=${pause} disabled=${!topic}>
        <p>${topic?.paused_at ? "Deliveries go on." : "Publishes are accepted, and nothing is delivered until the topic is resumed."}</p><//>
      <${Action} label="Delete" title=${`Delete ${name}`} danger confirm="Delete the topic" run=${remove}>
        <p>The topic and its subscriptions are deleted. This cannot be undone.</p><//></div>
    <${Failure} error=${error || subscriptionError} />
    ${topic && html`<${Facts} of=${{
      Confirmed: count(topic.subscriptions_confirmed), Pending: count(topic.subscriptions_pending),
      "Most bytes of a message": count(topic.max_message_bytes), Archive: topic.archive_days ? `${topic.archive_days} days` : "off",
      Created: html`<${Time} at=${topic.created_at} />`,
    }} />`}
    <h2>Subscriptions</h2>
    ${subscriptions && !subscriptions.length && html`<${Empty}>Nothing subscribes to this topic.<//>`}
    ${subscriptions?.length > 0 && html`<${Scroll} label="Subscriptions"><table><thead><tr><th scope="col">Protocol</th><th scope="col">Endpoint</th>
        <th scope="col">State</th><th scope="col">Filter policy</th></tr></thead>
      <tbody>${subscriptions.map((one) => html`<tr key=${one.id}><td>${one.protocol}</td>
        <td class="body">${one.queue_name ? html`<${Link} to=${path`/console/queues/${one.queue_name}`}>${one.queue_name}<//>` : one.endpoint}</td>
        <td>${one.is_confirmed ? html`<span class="tag good">confirmed</span>` : html`<span class="tag">pending</span>`}
          ${one.paused_at && html` <span class="tag bad">paused</span>`}</td>
        <td class="body">${one.filter_policy ? plain(JSON.stringify(one.filter_policy)) : "–"}</td></tr>`)}</tbody></table><//>`}
    <${Turn} pages=${pages} next=${next} turn=${setPages} what="subscriptions" />
    <${Deliveries} name=${name} hasHooks=${subscriptions?.some((one) => one.protocol.startsWith("http"))} /><${Trial} name=${name} />`;
}

// Return the lines of a text, each name=value or name:DataType=value, as message attributes.
function attributesOf(text) {
  return Object.fromEntries(text.split("\n").filter((line) => line.trim()).map((line) => {
    const [, key, type = "String", value] = /^\s*([^:=]+?)\s*(?::\s*([^=]+?)\s*)?=(.*)$/.exec(line) || [];
    if (!key) throw new Error(`An attribute is name=value or name:Number=value, and not: ${line}`);
    return [key, { DataType: type, StringValue: value }];
  }));
}

function asJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const ATTRIBUTES = "Attributes, one name=value a line; name:Number=7 or name:String.Array=[\"a\"] has a type";

function Trial({ name }) {
  const [found, error, submit] = useAnswer(({ message, attributes }) =>
    rest("POST", path`/v1/topics/${name}/trials`, { message: asJson(message), attributes: attributesOf(attributes) }));
  return html`<h2>Try a message</h2><p>Tests a message against the filter policies. Nothing is sent.</p>
    <form onSubmit=${submit}><${Field} label="Message" name="message" kind="area" rows="3" required />
      <${Field} label=${ATTRIBUTES} name="attributes" kind="area" rows="3" /><button>Try it</button></form>
    <${Failure} error=${error} />
    <p role="status">${found && `It would reach ${count(found.reached)} of ${count(found.tried)} confirmed subscriptions.`}</p>
    ${found?.tried > 0 && html`<${Scroll} label="Outcome of the trial"><table><thead><tr><th scope="col">Outcome</th><th scope="col">Endpoint</th>
        <th scope="col">Reason</th></tr></thead><tbody>${found.subscriptions.map((one) => html`<tr key=${one.subscription_id}>
          <td><span class=${`tag ${one.reasons.length ? "bad" : "good"}`}>${one.reasons.length ? "not reached" : "reached"}</span></td>
          <td class="body">${one.endpoint}</td><td class="body">${plain(one.reasons.join("; ")) || "–"}</td></tr>`)}</tbody></table><//>`}`;
}

function Deliveries({ name, hasHooks }) {
  const [pages, setPages] = useState([`${path`/v1/topics/${name}/deliveries`}?limit=50`]);
  const [[found, next] = [], error, reload] = useLive(() => listed(pages.at(-1)), 3, [pages.at(-1)]);
  const redrive = (ids) => async () => {
    await rest("POST", path`/v1/topics/${name}/deliveries/redrive`, { ids });
    reload();
  };
  if (!hasHooks && !found?.length && pages.length === 1) return null;
  const isExhausted = (one) => one.state === "exhausted";
  return html`<div class="bar"><h2>Deliveries to web hooks</h2>${found?.some(isExhausted) && html`
      <${Action} label="Redrive all" title="Redrive all exhausted deliveries" run=${redrive("all")}>
        <p>At most 1,000 exhausted deliveries start again now, with their first attempt.</p><//>`}</div>
    <${Failure} error=${error} />
    ${found && !found.length && html`<${Empty}>No delivery is pending or exhausted here. Those that a web hook accepted are not kept.<//>`}
    ${found?.length > 0 && html`<${Scroll} label="Deliveries to web hooks"><table><thead><tr><th scope="col">State</th><th scope="col">Endpoint</th>
      <th scope="col" class="number">Attempts</th><th scope="col">Last outcome</th><th scope="col">Next attempt</th><th scope="col">Published</th>
      <th scope="col">Action</th></tr></thead><tbody>${found.map((one) => html`<tr key=${one.id}>
        <td><span class=${`tag ${isExhausted(one) ? "bad" : ""}`}>${one.state.replace("_", " ")}</span></td>
        <td class="body">${one.kind === "Notification" ? "" : `${one.kind}: `}${one.endpoint}</td><td class="number">${count(one.attempts)}</td>
        <td class="body">${plain(one.last_error ?? one.last_status ?? "–")}</td><td><${Time} at=${one.due_at} /></td>
        <td><${Time} at=${one.created_at} /></td><td>${isExhausted(one) && html`<${Action} label="Redrive" title=${`Redrive delivery ${one.id}`}
          run=${redrive([one.id])}><p>The delivery to ${one.endpoint} starts again now, with its first attempt.</p><//>`}</td></tr>`)}</tbody></table><//>`}
    <${Turn} pages=${pages} next=${next} turn=${setPages} what="deliveries" />`;
}

function Publish({ name }) {
  const publish = async ({ message, subject, group, deduplication, attributes }) => {
    const members = { TopicArn: topicArn(name), Message: message, MessageAttributes: attributesOf(attributes) };
    if (subject) members.Subject = subject;
    if (group) members.MessageGroupId = group;
    if (deduplication) members.MessageDeduplicationId = deduplication;
    await aws("AmazonSNS.Publish", members);
  };
  const isFifo = name.endsWith(".fifo");
  return html`<${Action} label="Publish" title=${`Publish to ${name}`} run=${publish}>
    <${Field} label="Message" name="message" kind="area" required />
    <${Field} label=${ATTRIBUTES} name="attributes" kind="area" rows="3" />
    <${Field} label="Subject" name="subject" maxlength="100" />
    ${isFifo && html`<${Field} label="Message group" name="group" required />
      <${Field} label="Deduplication id" name="deduplication" />`}<//>`;
}

export function Outbox() {
  const [pages, setPages] = useState(["0"]);
  const query = new URLSearchParams({ limit: "50", account: session.account, after_id: pages.at(-1) });
  const [found, error] = useLive(() => rest("GET", `/_admin/outbox?${query}`), 5, [pages.at(-1)]);
  if (error) return null;
  return html`<h2>Outbox</h2><p>SMS, e-mail, push and invocations stay here: this gateway does not send them.</p>
    ${found && !found.messages.length && html`<${Empty}>The outbox is empty.<//>`}
    ${found?.messages.length > 0 && html`<${Scroll} label="Outbox"><table><thead><tr><th scope="col">Time</th><th scope="col">Protocol</th>
      <th scope="col">To</th><th scope="col">Message</th></tr></thead><tbody>${found.messages.map((one) => html`<tr key=${one.id}>
        <td><${Time} at=${one.created_at} /></td><td>${one.protocol}</td><td class="body">${one.destination}</td>
        <td class="body">${plain(String(one.body ?? one.message ?? "").slice(0, 300))}</td></tr>`)}</tbody></table><//>`}
    <${Turn} pages=${pages} next=${found?.next} turn=${setPages} what="messages" />`;
}
