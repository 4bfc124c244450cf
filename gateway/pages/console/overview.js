// All queues of the account, with depths, ages and rates.

import { html, useRef, useState } from "/console/assets/vendor/preact.js";
import { path, rest } from "/console/assets/api.js";
import {
  Action, Empty, Failure, Field, Link, Scroll, Sparkline, age, count, go, rate, useLive, useSorting,
} from "/console/assets/parts.js";

const PER_REQUEST = 100;
const MOST = 1000;

// Return the metrics of a page of at most 1,000 queues, and the name to go on after.
async function loadPage(after) {
  const rows = [];
  let next = after;
  do {
    const query = new URLSearchParams({ limit: PER_REQUEST, ...(next && { after: next }) });
    const found = (await rest("GET", `/v1/metrics?${query}`)).channels;
    rows.push(...found);
    next = found.length === PER_REQUEST ? found.at(-1).channel : null;
  } while (next && rows.length < MOST);
  return { rows, next };
}

const COLUMNS = {
  name: (row) => row.channel, visible: (row) => row.depth, flight: (row) => row.in_flight,
  delayed: (row) => row.delayed, age: (row) => row.oldest_age_seconds, sent: (row) => row.rates.published,
  finished: (row) => row.rates.finished, dead: (row) => row.dead_letters,
};

export function Overview() {
  const [after, setAfter] = useState("");
  const [wanted, setWanted] = useState(new URLSearchParams(location.search).get("find") || "");
  const depths = useRef(new Map());
  const [page, error] = useLive(async () => {
    const found = await loadPage(after);
    for (const row of found.rows) {
      const kept = depths.current.get(row.channel) || [];
      depths.current.set(row.channel, [...kept.slice(-59), row.depth]);
    }
    return found;
  }, 3, [after]);
  const rows = page?.rows || [];
  const shown = rows.filter((row) => row.channel.toLowerCase().includes(wanted.toLowerCase()));
  const [sorted, Heading] = useSorting(shown, COLUMNS, ["name", false]);
  const find = (event) => {
    setWanted(event.target.value);
    const query = event.target.value ? `?${new URLSearchParams({ find: event.target.value })}` : "";
    history.replaceState(null, "", `${location.pathname}${query}`);
  };
  return html`<div class="bar"><h1>Queues</h1>
      <label class="field"><span>Find by name</span><input type="search" value=${wanted} onInput=${find} /></label>
      <${CreateQueue} /></div>
    <${Failure} error=${error} />
    ${page && !rows.length && html`<${Empty}><p>This account has no queue.</p>
      <p>Create one here, or with any SDK at this endpoint: <code>${location.origin}</code></p><//>`}
    ${rows.length > 0 && html`<${Scroll} label="Queues"><table>
      <thead><tr><${Heading} by="name" number=${false}>Name<//>
        <${Heading} by="visible">Visible<//><th scope="col">Trend</th>
        <${Heading} by="flight">In flight<//><${Heading} by="delayed">Delayed<//>
        <${Heading} by="age">Oldest<//><${Heading} by="sent">Sent<//><${Heading} by="finished">Finished<//>
        <${Heading} by="dead">Dead letters<//></tr></thead>
      <tbody>${sorted.slice(0, PER_REQUEST * 2).map((row) => html`<tr key=${row.channel}>
        <td><${Link} to=${path`/console/queues/${row.channel}`}>${row.channel}<//></td>
        <td class="number">${count(row.depth)}</td>
        <td><${Sparkline} values=${depths.current.get(row.channel) || []} label="Visible messages lately" /></td>
        <td class="number">${count(row.in_flight)}</td><td class="number">${count(row.delayed)}</td>
        <td class="number">${age(row.oldest_age_seconds)}</td>
        <td class="number">${rate(row.rates.published)}</td><td class="number">${rate(row.rates.finished)}</td>
        <td class="number">${row.dead_letters ? html`<span class="tag bad">${count(row.dead_letters)}</span>` : "–"}</td>
      </tr>`)}</tbody></table><//>
      <p>${count(sorted.length)} of ${count(rows.length)} queues${sorted.length > PER_REQUEST * 2 &&
        `; the first ${PER_REQUEST * 2} are shown: search for others`}.
        ${after && html` <button onClick=${() => setAfter("")}>First page</button>`}
        ${page?.next && html` <button onClick=${() => setAfter(page.next)}>Next ${count(MOST)}</button>`}</p>`}`;
}

function CreateQueue() {
  const create = async ({ name }) => {
    await rest("POST", "/v1/queues", { name, fifo: name.endsWith(".fifo") });
    go(path`/console/queues/${name}`);
  };
  return html`<${Action} label="Create a queue" title="Create a queue" confirm="Create" run=${create}>
    <${Field} label="Name. One that ends in .fifo makes a FIFO queue." name="name" required maxlength="80" /><//>`;
}
