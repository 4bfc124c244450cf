// Logs with their groups, and channels with their priorities.

import { html, useState } from "/console/assets/vendor/preact.js";
import { path, rest } from "/console/assets/api.js";
import {
  Action, Chart, Empty, Facts, Failure, Field, Link, Rows, Scroll, Time, age, count, rate, useLive, useSamples,
} from "/console/assets/parts.js";

export function Logs() {
  const [found, error, reload] = useLive(() => rest("GET", "/v1/logs?max=100"), 5, []);
  const create = async ({ name, partitions }) => {
    await rest("POST", "/v1/logs", { log: name, partitions: Number(partitions) });
    reload();
  };
  return html`<div class="bar"><h1>Logs</h1><${Action} label="Create a log" title="Create a log" confirm="Create" run=${create}>
      <${Field} label="Name" name="name" required /><${Field} label="Partitions" name="partitions" kind="number" min="1" value="1" /><//></div>
    <${Failure} error=${error} />
    ${found && !found.logs.length && html`<${Empty}>This account has no log. Logs keep records for groups that read at their own pace.<//>`}
    ${found?.logs.length > 0 && html`<table><thead><tr><th scope="col">Name</th><th scope="col" class="number">Partitions</th>
      <th scope="col">Kept for</th></tr></thead><tbody>${found.logs.map((one) => html`<tr key=${one.log}>
        <td><${Link} to=${path`/console/logs/${one.log}`}>${one.log}<//></td><td class="number">${count(one.partitions)}</td>
        <td>${one.max_age ?? "–"}</td></tr>`)}</tbody></table>`}`;
}

export function OneLog({ name }) {
  const [log, error] = useLive(() => rest("GET", path`/v1/logs/${name}`), 3, [name]);
  const [groups] = useLive(() => rest("GET", path`/v1/logs/${name}/groups`), 3, [name]);
  const [partitions] = useLive(() => rest("GET", path`/v1/logs/${name}/partitions`), 3, [name]);
  const lag = groups?.groups.reduce((all, one) => all + (one.lag || 0), 0);
  const samples = useSamples(groups && [Math.floor(Date.now() / 3000) * 3, lag]);
  return html`<h1>${name}</h1><${Failure} error=${error} />
    ${log && html`<${Facts} of=${Object.fromEntries(Object.entries(log).filter(([, value]) => typeof value !== "object").map(
      ([key, value]) => [key.replaceAll("_", " "), /_at$/.test(key) ? html`<${Time} at=${value} />` : String(value)]))} />`}
    <h2>Groups</h2>
    ${groups && !groups.groups.length && html`<${Empty}>No group reads this log.<//>`}
    ${groups?.groups.length > 0 && html`<${Rows} label="Groups" of=${groups.groups} />
      <${Chart} title="Lag of all groups" times=${samples.map((one) => one[0])} lines=${[{ label: "lag", values: samples.map((one) => one[1]) }]} />`}
    <h2>Partitions</h2>${partitions && html`<${Rows} label="Partitions" of=${partitions.partitions} />`}
    <${Records} name=${name} />`;
}

function Records({ name }) {
  const [place, setPlace] = useState({ partition: "0", from: "" });
  const query = new URLSearchParams({ partition: place.partition, max: "50", ...(place.from && { from: place.from }) });
  const [found, error] = useLive(() => rest("GET", `${path`/v1/logs/${name}/records`}?${query}`), 5, [place.partition, place.from]);
  const change = (key) => (event) => setPlace({ ...place, [key]: event.target.value });
  return html`<h2>Records</h2><div class="bar">
      <label class="field"><span>Partition</span><input type="number" min="0" value=${place.partition} onChange=${change("partition")} /></label>
      <label class="field"><span>From offset</span><input type="number" min="0" value=${place.from} onChange=${change("from")} /></label></div>
    <${Failure} error=${error} />
    ${found && !found.records.length && html`<${Empty}>No record here.<//>`}
    ${found?.records.length > 0 && html`<${Rows} label="Records" of=${found.records.map((one) => ({ ...one,
      payload: typeof one.payload === "object" ? JSON.stringify(one.payload) : one.payload }))} />`}`;
}

export function Channels() {
  const [found, error] = useLive(() => rest("GET", "/v1/metrics?limit=100"), 3, []);
  return html`<h1>Channels</h1><${Failure} error=${error} />
    ${found && !found.channels.length && html`<${Empty}>This account has no channel. A channel is a queue with priorities.<//>`}
    ${found?.channels.length > 0 && html`<${Scroll} label="Channels"><table><thead><tr><th scope="col">Channel</th><th scope="col">Depth by priority</th>
      <th scope="col" class="number">In flight</th><th scope="col" class="number">Published</th><th scope="col" class="number">Finished</th></tr></thead>
      <tbody>${found.channels.map((one) => html`<tr key=${one.channel}><td><${Link} to=${path`/console/queues/${one.channel}`}>${one.channel}<//></td>
        <td>${one.priorities.map((level) => html`<span class="tag">${level.priority}: ${count(level.depth)}, ${age(level.oldest_age_seconds)}</span> `)}</td>
        <td class="number">${count(one.in_flight)}</td><td class="number">${rate(one.rates.published)}</td>
        <td class="number">${rate(one.rates.finished)}</td></tr>`)}</tbody></table><//>`}`;
}
