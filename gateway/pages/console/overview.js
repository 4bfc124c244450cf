// All queues of the account, with depths, ages, rates and readers.

import { html, useEffect, useRef, useState } from "/console/assets/vendor/preact.js";
import { path, rest } from "/console/assets/api.js";
import {
  Action, Empty, Failure, Field, Link, Scroll, Sparkline, age, count, go, rate, useAddress, useSorting, useStream,
} from "/console/assets/parts.js";

const SHOWN = 200;
const SEARCH_MS = 250;
const UNREAD_SECONDS = 60;

// Return the seconds for which a queue with visible messages has not been read; 0: not known.
function unread(row, { at, since }) {
  if (!row.visible || row.waiting || row.paused) return 0;
  return Math.max(at - (row.read || Math.max(row.oldest || at, since)), 0);
}

const columns = (page) => ({
  name: (row) => row.name, visible: (row) => row.visible, flight: (row) => row.flight,
  delayed: (row) => row.delayed, age: (row) => row.oldest && page.at - row.oldest, sent: (row) => row.sent,
  finished: (row) => row.finished, dead: (row) => row.dead,
  readers: (row) => row.waiting || (row.read ? row.read - page.at : -1e9) - unread(row, page),
});

// Say who reads: receives that wait, or the time since the last one that returned messages.
function Readers({ row, page }) {
  const seconds = unread(row, page);
  if (seconds >= UNREAD_SECONDS) return html`<span class="tag bad">unread for ${age(seconds)}</span>`;
  return row.waiting ? `${count(row.waiting)} waiting` : row.read ? `${age(page.at - row.read)} ago` : "–";
}

export function Overview() {
  const [address, change] = useAddress({ find: "", after: "", sort: "name" });
  const [wanted, setWanted] = useState(address.find);
  const { after, find } = address;
  const [page, error] = useStream({ ...(after && { after }), ...(find && { find }) });
  const depths = useRef(new Map());
  const lastAt = useRef(0);
  if (page && page.at !== lastAt.current) {
    lastAt.current = page.at;
    depths.current = new Map([...page.rows.values()].map((row) =>
      [row.name, [...(depths.current.get(row.name) || []).slice(-59), row.visible]]));
  }
  const rows = page ? [...page.rows.values()] : [];
  const shown = rows.filter((row) => row.name.toLowerCase().includes(wanted.toLowerCase()));
  const [sorted, Heading] = useSorting(shown, columns(page), address.sort, (sort) => change({ sort }));
  useEffect(() => {
    const timer = setTimeout(() => wanted !== find && change({ find: wanted, after: "" }), SEARCH_MS);
    return () => clearTimeout(timer);
  }, [wanted]);
  return html`<div class="bar"><h1>Queues</h1>
      <label class="field"><span>Find by name</span><input type="search" maxlength="80" value=${wanted}
        onInput=${(event) => setWanted(event.target.value)} /></label>
      <${CreateQueue} /></div>
    <${Failure} error=${error} />
    ${page && !rows.length && (find || after ? html`<${Empty}>No queue here has such a name.<//>`
      : html`<${Empty}><p>This account has no queue here.</p>
        <p>Create one here, or with any SDK at this endpoint: <code>${location.origin}</code></p><//>`)}
    ${rows.length > 0 && html`<${Scroll} label="Queues"><table>
      <thead><tr><${Heading} by="name" number=${false}>Name<//>
        <${Heading} by="visible">Visible<//><th scope="col">Trend</th>
        <${Heading} by="flight">In flight<//><${Heading} by="delayed">Delayed<//>
        <${Heading} by="age">Oldest<//><${Heading} by="sent">Sent<//><${Heading} by="finished">Finished<//>
        <${Heading} by="dead">Dead letters<//><${Heading} by="readers">Readers<//></tr></thead>
      <tbody>${sorted.slice(0, SHOWN).map((row) => html`<tr key=${row.name}>
        <td><${Link} to=${path`/console/queues/${row.name}`}>${row.name}<//>
          ${row.paused ? html` <span class="tag bad">paused</span>` : ""}</td>
        <td class="number">${count(row.visible)}</td>
        <td><${Sparkline} values=${depths.current.get(row.name) || []} label="Visible messages lately" /></td>
        <td class="number">${count(row.flight)}</td><td class="number">${count(row.delayed)}</td>
        <td class="number">${age(row.oldest && page.at - row.oldest)}</td>
        <td class="number">${rate(row.sent)}</td><td class="number">${rate(row.finished)}</td>
        <td class="number">${row.dead ? html`<span class="tag bad">${count(row.dead)}</span>` : "–"}</td>
        <td class="number"><${Readers} row=${row} page=${page} /></td>
      </tr>`)}</tbody></table><//>
      <p>${count(sorted.length)} of ${count(rows.length)} queues${sorted.length > SHOWN &&
        `; the first ${SHOWN} are shown: search for others`}.</p>`}
    <div class="bar">${after && html`<button onClick=${() => change({ after: "" })}>First page</button>`}
      ${page?.next && html`<button onClick=${() => change({ after: page.next })}>Next page</button>`}</div>`;
}

function CreateQueue() {
  const create = async ({ name }) => {
    await rest("POST", "/v1/queues", { name, fifo: name.endsWith(".fifo") });
    go(path`/console/queues/${name}`);
  };
  return html`<${Action} label="Create a queue" title="Create a queue" confirm="Create" run=${create}>
    <${Field} label="Name. One that ends in .fifo makes a FIFO queue." name="name" required maxlength="80" /><//>`;
}
