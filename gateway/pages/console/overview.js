// Everything that the account has, or all accounts have, or one kind of it: depths, ages, rates, readers.

import { html, useEffect, useRef, useState } from "/console/assets/vendor/preact.js";
import { aws, path, rest, session } from "/console/assets/api.js";
import {
  Action, Empty, Failure, Field, Link, Scroll, Sparkline, age, count, go, rate, useAddress, useSorting, useStream,
} from "/console/assets/parts.js";
import { Outbox } from "/console/assets/topics.js";

const SHOWN = 200;
const SEARCH_MS = 250;
const UNREAD_SECONDS = 60;

const fifo = (name) => name.endsWith(".fifo");

// By kind: its views, what its depth is, who reads, and how it is made.
const KINDS = {
  queue: {
    section: "queues", title: "Queues", depth: "Visible", about: "One that ends in .fifo makes a FIFO queue.",
    create: ({ name }) => rest("POST", "/v1/queues", { name, fifo: fifo(name) }),
  },
  topic: {
    section: "topics", title: "Topics", depth: "Deliveries due", reader: "subscription", about: "One that ends in .fifo makes a FIFO topic.",
    create: ({ name }) => aws("AmazonSNS.CreateTopic", { Name: name, ...(fifo(name) && { Attributes: { FifoTopic: "true" } }) }),
  },
  channel: { section: "channels", title: "Channels", depth: "Visible", made: "the first publish creates it" },
  log: {
    section: "logs", title: "Logs", depth: "Lag of the slowest group", reader: "subscriber", about: "Logs keep records for groups that read at their own pace.",
    create: ({ name, partitions }) => rest("POST", "/v1/logs", { log: name, partitions: Number(partitions) }),
  },
};

// Return the seconds for which a queue or log with messages has not been read; 0: not known.
function unread(row, { at, since }) {
  if (!row.visible || row.waiting || row.paused || row.kind === "topic") return 0;
  return Math.max(at - (row.read || Math.max(row.oldest || at, since)), 0);
}

const columns = (page) => ({
  name: (row) => row.name, kind: (row) => row.kind, place: (row) => `${row.account} ${row.region}`,
  visible: (row) => row.visible, flight: (row) => row.flight, delayed: (row) => row.delayed,
  age: (row) => row.oldest && page.at - row.oldest, sent: (row) => row.sent, finished: (row) => row.finished,
  dead: (row) => row.dead,
  readers: (row) => row.waiting || (row.read ? row.read - page.at : -1e9) - unread(row, page),
});

// Say who reads: receives that wait, or the time since the last one that returned messages.
function Readers({ row, page }) {
  const seconds = unread(row, page);
  if (seconds >= UNREAD_SECONDS) return html`<span class="tag bad">unread for ${age(seconds)}</span>`;
  const { reader } = KINDS[row.kind];
  if (row.waiting) return `${count(row.waiting)} ${reader || "waiting"}${reader && row.waiting > 1 ? "s" : ""}`;
  return row.read ? `${age(page.at - row.read)} ago` : "–";
}

export function Overview({ name: kind }) {
  const [address, change] = useAddress({ find: "", first: "", sort: "name", accounts: "" });
  const [wanted, setWanted] = useState(address.find);
  const { accounts, find, first } = address;
  const query = Object.entries({ kind, accounts, find, first }).filter(([, value]) => value);
  const [page, error] = useStream(Object.fromEntries(query));
  const depths = useRef(new Map());
  const lastAt = useRef(0);
  if (page && page.at !== lastAt.current) {
    lastAt.current = page.at;
    depths.current = new Map([...page.rows].map(([key, row]) => [key, [...(depths.current.get(key) || []).slice(-59), row.visible || 0]]));
  }
  const { title, depth } = KINDS[kind] || { title: "Overview", depth: "Depth" };
  const rows = page ? [...page.rows.values()] : [];
  const shown = rows.filter((row) => row.name.toLowerCase().includes(wanted.toLowerCase()));
  const [sorted, Heading] = useSorting(shown, columns(page), address.sort, (sort) => change({ sort }));
  useEffect(() => {
    const timer = setTimeout(() => wanted !== find && change({ find: wanted, first: "" }), SEARCH_MS);
    return () => clearTimeout(timer);
  }, [wanted]);
  return html`<div class="bar"><h1>${title}</h1>
      ${session.administrator && html`<label><input type="checkbox" checked=${Boolean(accounts)}
        onChange=${(event) => change({ accounts: event.target.checked ? "all" : "", first: "" })} /> All accounts and regions</label>`}
      <label class="field"><span>Find by name</span><input type="search" maxlength="80" value=${wanted}
        onInput=${(event) => setWanted(event.target.value)} /></label>
      ${(kind ? [kind] : Object.keys(KINDS)).map((one) => KINDS[one].create && html`<${Create} key=${one} kind=${one} />`)}</div>
    <${Failure} error=${error} />
    ${page && !rows.length && (find || first ? html`<${Empty}>Nothing here has such a name.<//>` : html`<${Nothing} kind=${kind} />`)}
    ${rows.length > 0 && html`<${Scroll} label=${title}><table>
      <thead><tr><${Heading} by="name" number=${false}>Name<//>${!kind && html`<${Heading} by="kind" number=${false}>Kind<//>`}
        ${accounts && html`<${Heading} by="place" number=${false}>Account<//>`}
        <${Heading} by="visible">${depth}<//><th scope="col">Trend</th>
        <${Heading} by="flight">In flight<//><${Heading} by="delayed">Delayed<//>
        <${Heading} by="age">Oldest<//><${Heading} by="sent">In<//><${Heading} by="finished">Out<//>
        <${Heading} by="dead">Dead letters<//><${Heading} by="readers">Readers<//></tr></thead>
      <tbody>${sorted.slice(0, SHOWN).map((row) => html`<tr key=${row.key}>
        <td><${Link} to=${path`/console/${KINDS[row.kind].section}/${row.name}`} place=${row}>${row.name}<//>
          ${row.paused ? html` <span class="tag bad">paused</span>` : ""}</td>${!kind && html`<td>${row.kind}</td>`}
        ${accounts && html`<td>${row.account}<br />${row.region}</td>`}
        <td class="number">${count(row.visible)}</td>
        <td><${Sparkline} values=${depths.current.get(row.key) || []} label="Depth lately" /></td>
        <td class="number">${count(row.flight)}</td><td class="number">${count(row.delayed)}</td>
        <td class="number">${age(row.oldest && page.at - row.oldest)}</td>
        <td class="number">${rate(row.sent)}</td><td class="number">${rate(row.finished)}</td>
        <td class="number">${row.dead ? html`<span class="tag bad">${count(row.dead)}</span>` : "–"}</td>
        <td class="number"><${Readers} row=${row} page=${page} /></td>
      </tr>`)}</tbody></table><//>
      <p>${count(sorted.length)} of ${count(rows.length)} rows${sorted.length > SHOWN &&
        `; the first ${SHOWN} are shown: search for others`}.</p>`}
    <div class="bar">${first && html`<button onClick=${() => change({ first: "" })}>First page</button>`}
      ${page?.next && html`<button onClick=${() => change({ first: page.next })}>Next page</button>`}</div>
    ${kind === "topic" && html`<${Outbox} />`}`;
}

function Nothing({ kind }) {
  const { about, made } = KINDS[kind] || { about: "" };
  return html`<${Empty}><p>This account has no ${kind || "queue, topic, channel or log"} here.${kind === "log" && ` ${about}`}</p>
    <p>${made ? `A channel is a queue with priorities: ${made}.` : html`Create one here, or with any SDK at this endpoint: <code>${location.origin}</code>`}</p><//>`;
}

function Create({ kind }) {
  const { about, create, section } = KINDS[kind];
  const run = async (fields) => {
    await create(fields);
    go(path`/console/${section}/${fields.name}`);
  };
  return html`<${Action} label=${`Create a ${kind}`} title=${`Create a ${kind}`} confirm="Create" run=${run}>
    <${Field} label=${`Name. ${about}`} name="name" required maxlength=${kind === "topic" ? 256 : 80} />
    ${kind === "log" && html`<${Field} label="Partitions" name="partitions" kind="number" min="1" value="1" />`}<//>`;
}
