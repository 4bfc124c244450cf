// Logs with their groups, and channels with their priorities and push connections.

import { html, useState } from "/console/assets/vendor/preact.js";
import { path, rest } from "/console/assets/api.js";
import {
  Action, Chart, Empty, Facts, Failure, Field, Link, Rows, Scroll, Time, age, count, plain, useLive, useSamples,
} from "/console/assets/parts.js";

// The lag of at most four groups since the view was opened.
function Lag({ groups }) {
  const shown = groups.slice(0, 4);
  const samples = useSamples([Math.floor(Date.now() / 3000) * 3, ...shown.map((one) => one.lag)]);
  return samples.length > 1 && html`<${Chart} title="Lag of groups in records" times=${samples.map((one) => one[0])}
    lines=${shown.map((one, at) => ({ label: one.group, values: samples.map((sample) => sample[at + 1]) }))} />`;
}

export function OneLog({ name }) {
  const [log, error] = useLive(() => rest("GET", path`/v1/logs/${name}`), 3, [name]);
  const [found, groupError, reload] = useLive(() => rest("GET", path`/v1/logs/${name}/groups`), 3, [name]);
  const [partitions] = useLive(() => rest("GET", `${path`/v1/logs/${name}/partitions`}?max=100`), 3, [name]);
  const groups = found?.groups || [];
  const chosen = groups.find((one) => one.group === new URLSearchParams(location.search).get("group"));
  return html`<h1>${name}</h1><${Failure} error=${error || groupError} />
    ${log && html`<${Facts} of=${Object.fromEntries(Object.entries(log).filter(([, value]) => typeof value !== "object").map(
      ([key, value]) => [key.replaceAll("_", " "), /_at$/.test(key) ? html`<${Time} at=${value} />` : String(value)]))} />`}
    <h2>Groups</h2>
    ${found && !groups.length && html`<${Empty}>No group reads this log. The first heartbeat of a subscriber creates one.<//>`}
    ${groups.length > 0 && html`<${Scroll} label="Groups"><table><thead><tr><th scope="col">Group</th><th scope="col" class="number">Lag</th>
        <th scope="col" class="number">In flight</th><th scope="col">Oldest unread</th><th scope="col" class="number">Subscribers</th><th scope="col">Feeds</th></tr></thead>
      <tbody>${groups.map((one) => html`<tr key=${one.group}><td><${Link} to=${path`/console/logs/${name}?group=${one.group}`}>${one.group}<//></td>
        <td class="number">${count(one.lag)}</td><td class="number">${count(one.in_flight)}</td><td>${age(one.watermark_age_seconds || null)}</td>
        <td class="number">${count(one.subscribers.length)}</td><td>${one.queue
          ? html`<${Link} to=${path`/console/queues/${one.queue}`}>${one.queue}<//>` : "–"}</td></tr>`)}</tbody></table><//>
      <${Lag} key=${groups.slice(0, 4).map((one) => one.group).join()} groups=${groups} />`}
    ${chosen && html`<${Group} key=${chosen.group} log=${name} group=${chosen} done=${reload} />`}
    <h2>Partitions</h2>${partitions && (partitions.partitions.length ? html`<${Rows} label="Partitions" of=${partitions.partitions} />`
      : html`<${Empty}>No partition yet: the first record of a key creates one.<//>`)}
    <${Records} name=${name} />`;
}

// One group: who holds its partitions, its positions, and its dead letters.
function Group({ log, group, done }) {
  const place = path`/v1/logs/${log}/groups/${group.group}`;
  const [positions, error, reload] = useLive(() => rest("GET", `${place}/partitions?max=100`), 3, []);
  const seek = async ({ to, time, partition, offset }) => {
    const body = to === "offset" ? { offsets: [{ partition: Number(partition), offset: Number(offset) }] }
      : { to: to === "time" ? new Date(time || NaN).toISOString() : to };
    await rest("POST", `${place}/seek`, body);
    reload();
    done();
  };
  return html`<div class="bar"><h2>Group ${group.group}</h2>
      <${Action} label="Seek" title=${`Set the position of ${group.group}`} danger confirm="Set the position" run=${seek}>
        <p>The group reads on from there: records may be read again, or skipped. Records in flight are released, and their receipts become invalid.</p>
        <label class="field"><span>To</span><select name="to"><option value="earliest">the first stored record</option>
          <option value="latest">the next published record</option><option value="time">a time</option><option value="offset">an offset of a partition</option></select></label>
        <${Field} label="Time (for a time)" name="time" kind="datetime-local" step="1" />
        <${Field} label="Partition (for an offset)" name="partition" kind="number" min="0" value="0" />
        <${Field} label="Offset" name="offset" kind="number" min="0" value="0" /><//></div>
    <h3>Holders of leases</h3>${group.subscribers.length ? html`<${Rows} label="Holders of leases" of=${group.subscribers.map((one) => (
      { subscriber: one.subscriber, lease_ends_at: one.live_until, partitions: one.partitions }))} />` : html`<${Empty}>No subscriber is live.<//>`}
    <h3>Positions</h3><${Failure} error=${error} />${positions && html`<${Rows} label="Positions" of=${positions.partitions} />`}
    <${DeadLetters} log=${log} group=${group.group} />`;
}

function DeadLetters({ log, group }) {
  const place = path`/v1/logs/${log}/dead-letters`;
  const [found, error, reload] = useLive(() => rest("GET", `${place}?${new URLSearchParams({ group, max: 100 })}`), 5, []);
  const requeue = (which) => async () => {
    await rest("POST", `${place}/requeue`, which);
    reload();
  };
  const purge = async () => {
    await rest("POST", `${place}/purge?${new URLSearchParams({ group })}`);
    reload();
  };
  return html`<div class="bar"><h3>Dead letters</h3>${found?.records.length > 0 && html`
      <${Action} label="Requeue all" title=${`Requeue the dead letters of ${group}`} run=${requeue({ all: true, group })}>
        <p>At most 1,000 are published again, to the end of ${log}, for this group alone.</p><//>
      <${Action} label="Delete all" title=${`Delete the dead letters of ${group}`} danger confirm="Delete them" run=${purge}>
        <p>All dead letters of this group are deleted. This cannot be undone.</p><//>`}</div>
    <${Failure} error=${error} />${found && !found.records.length && html`<${Empty}>No dead letter of this group is in ${found.log}.<//>`}
    ${found?.records.length > 0 && html`<${Scroll} label="Dead letters"><table><thead><tr><th scope="col">Failed</th><th scope="col">Key</th>
      <th scope="col" class="number">Attempts</th><th scope="col">Error</th><th scope="col">Payload</th><th scope="col">Action</th></tr></thead>
      <tbody>${found.records.map((one) => html`<tr key=${`${one.partition}/${one.offset}`}><td><${Time} at=${one.failure?.failed_at} /></td>
        <td class="body">${plain(one.key)}</td><td class="number">${count(one.failure?.failure_count)}</td>
        <td class="body">${plain(one.failure?.last_error || "–")}</td><td class="body">${plain(one.payload.slice(0, 300))}</td>
        <td><${Action} label="Requeue" title="Requeue this dead letter" run=${requeue({ offsets: [{ partition: one.partition, offset: one.offset }] })}>
          <p>The record is published again, to the end of ${log}, for this group alone.</p><//></td></tr>`)}</tbody></table><//>`}`;
}

function Records({ name }) {
  const [place, setPlace] = useState({ partition: "0", from: "", key: "" });
  const query = new URLSearchParams({ max: 50, ...Object.fromEntries(Object.entries(place).filter(([, value]) => value)) });
  const [found, error] = useLive(() => rest("GET", `${path`/v1/logs/${name}/records`}?${query}`), 5, [String(query)]);
  const change = (key) => (event) => setPlace({ ...place, [key]: event.target.value });
  return html`<h2>Records</h2><div class="bar">
      <label class="field"><span>Key (instead of a partition)</span><input type="search" value=${place.key} onChange=${change("key")} /></label>
      <label class="field"><span>Partition</span><input type="number" min="0" value=${place.partition} disabled=${Boolean(place.key)} onChange=${change("partition")} /></label>
      <label class="field"><span>From offset</span><input type="number" min="0" value=${place.from} onChange=${change("from")} /></label>
      <button disabled=${!found || found.next <= Number(place.from || 0)} onClick=${() => setPlace({ ...place, from: String(found.next) })}>Later records</button></div>
    <${Failure} error=${error} />
    ${found && !found.records.length && html`<${Empty}>No record here.<//>`}
    ${found?.records.length > 0 && html`<${Rows} label="Records" of=${found.records.map((one) => ({ ...one,
      payload: one.payload.length > 1000 ? `${one.payload.slice(0, 1000)}…` : one.payload }))} />`}`;
}

export function OneChannel({ name }) {
  const [found, error] = useLive(async () => {
    const [channel, metrics, answer] = await Promise.all([
      rest("GET", path`/v1/channels/${name}`), rest("GET", `/v1/metrics?${new URLSearchParams({ channel: name })}`),
      rest("GET", path`/v1/channels/${name}/connections`),
    ]);
    return { channel, metrics: metrics.channels[0], connections: answer.connections };
  }, 3, [name]);
  if (!found) return html`<h1>${name}</h1><${Failure} error=${error} />`;
  const { channel, metrics, connections } = found;
  return html`<div class="bar"><h1>${name}</h1><${Link} to=${path`/console/queues/${name}`}>Messages<//></div><${Failure} error=${error} />
    <${Facts} of=${{ Available: count(metrics.depth), "In flight": count(metrics.in_flight), Delayed: count(metrics.delayed),
      "Dead letters": count(metrics.dead_letters), "Acknowledgement window": `${channel.ack_window} s`,
      "Most deliveries": count(channel.max_deliveries), Size: channel.size === null ? "no limit" : count(channel.size) }} />
    <h2>Priorities</h2>${metrics.priorities.length ? html`<${Rows} label="Priorities" of=${metrics.priorities} />`
      : html`<${Empty}>No message is available.<//>`}
    <h2>Push connections</h2>${connections.length ? html`<${Rows} label="Push connections" of=${connections} />`
      : html`<${Empty}>No consumer is connected to this gateway. Consumers connect to <code>/v1/messages/stream?channel=${name}</code>; polls are not connections.<//>`}`;
}
