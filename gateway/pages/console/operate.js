// The gateway itself: health of database, lanes and workers; keys and quotas; clock and faults.

import { html, useState } from "/console/assets/vendor/preact.js";
import { path, rest, session } from "/console/assets/api.js";
import { Action, Empty, Facts, Failure, Field, Rows, Scroll, Time, age, count, useLive, useSorting } from "/console/assets/parts.js";

const SHOWN = ["lane_flush_duration_seconds", "lane_waiting_seconds", "queue_coalescer_flush_batch_size", "build_info",
  "worker_last_round_timestamp_seconds", "event_loop_lag_seconds", "certificate_expiry_timestamp_seconds", "db_pool_active",
  "db_pool_size", "disk_free_bytes", "requests_throttled", "quota_refusals", "account_buffered_bytes"];
const LINE = /^queuegate_(\w+)(?:\{(.*)\})? (\S+)$/;

// Return the samples of /metrics by name: [{labels, value}].
async function samples() {
  const text = await rest("GET", `/metrics?names=new&${SHOWN.map((name) => `name[]=queuegate_${name}`).join("&")}`);
  const found = {};
  for (const [, name, labels, value] of String(text).split("\n").map((line) => LINE.exec(line)).filter(Boolean)) {
    const pairs = [...(labels || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, one]) => [key, one.replace(/\\(["\\])/g, "$1")]);
    (found[name] ??= []).push({ labels: Object.fromEntries(pairs), value: Number(value) });
  }
  return found;
}

const bytes = (value) => {
  if (value === null || value === undefined) return "–";
  const power = Math.min(4, Math.floor(Math.log2(Math.max(1, value)) / 10));
  return `${(value / 1024 ** power).toLocaleString(undefined, { maximumFractionDigits: power ? 1 : 0 })} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
};
const time = (seconds) => (seconds === undefined || Number.isNaN(seconds) ? "–"
  : seconds < 1 ? `${(seconds * 1000).toLocaleString(undefined, { maximumFractionDigits: 1 })} ms` : `${seconds.toFixed(1)} s`);
const ago = (seconds) => (seconds ? html`<span title=${new Date(seconds * 1000).toISOString()}>${age(Math.max(0, Date.now() / 1000 - seconds))} ago</span>` : "–");
const state = (good, text) => html`<span class=${`tag ${good ? "good" : "bad"}`}>${text}</span>`;
export function Operate() {
  const [ready] = useLive(async () => (await fetch("/readyz")).json(), 3, []);
  const [health, error] = useLive(() => session.administrator && rest("GET", "/_admin/health"), 5, []);
  const [found] = useLive(() => session.administrator && samples(), 5, []);
  if (!session.administrator) return html`<h1>Operate</h1><${Empty}><p>Database, workers and faults are for administrators.</p>
    <p>See <code>queuegate doctor</code>, and /metrics at <code>QUEUEGATE_OPERATIONS_ADDRESS</code>.</p><//><${Keys} found=${{}} />`;
  const one = (name) => found?.[name]?.[0]?.value, build = found?.build_info?.[0]?.labels || {};
  return html`<h1>Operate</h1><${Failure} error=${error} />
    <${Facts} of=${{
      Gateway: ready ? html`${state(ready.status === "ok", ready.status)} ${ready.reason || ready.warning || ""}` : "–",
      Database: health ? state(health.database.is_up, health.database.is_up ? "up" : "down") : "–",
      Versions: `Queuegate ${session.version}, Python ${build.python || "–"}, PostgreSQL ${build.postgresql || "–"}`,
      Processes: count(health?.processes), "Delay of the event loop": time(one("event_loop_lag_seconds")),
      "Connections of the pool": `${count(one("db_pool_active"))} of ${count(one("db_pool_size"))} in use`,
      Region: session.region, Data: session.ephemeral ? "ephemeral" : "kept", "Free disk": bytes(one("disk_free_bytes")),
      ...Object.fromEntries((found?.certificate_expiry_timestamp_seconds || []).map(({ labels, value }) =>
        [`Certificate ${labels.certificate} ends`, html`<${Time} at=${value * 1000} />`])),
    }} />
    ${health && html`<${Database} report=${health.database} />`}
    ${found && html`<${Lanes} of=${found} /><${Workers} rounds=${found.worker_last_round_timestamp_seconds || []} />`}
    <${Keys} found=${found || {}} /><${Audit} /><${Clock} /><${Faults} />`;
}

const holder = (one) => (one ? `${time(one.age_seconds)}, ${one.pid === null ? "prepared" : `pid ${one.pid}`}, ${one.application || "no name"}, `
  + `user ${one.user}, ${one.state}` : "none");

const snapshot = (one) => [one.kind, one.name || "without a name", one.pid && `pid ${one.pid}`, one.user && `user ${one.user}`, one.state]
  .filter(Boolean).join(", ");

function Database({ report: { findings, read_at, statistics: { server, tables, replicas, slots } } }) {
  const kept = tables.filter((table) => table.live_rows || table.dead_rows);
  const [order, setOrder] = useState("-size");
  const [sorted, Heading] = useSorting(kept, { name: (row) => row.name, live: (row) => row.live_rows,
    dead: (row) => row.dead_rows, size: (row) => row.size_bytes, vacuum: (row) => row.vacuumed_at }, order, setOrder);
  return html`<h2>What to do</h2>
    ${findings.length ? findings.map((one) => html`<p class="failure" key=${one.text}><strong>${one.text}.</strong> ${one.remedy}.</p>`)
      : html`<p>Nothing: no long transaction, no table with many dead rows, no inactive slot that keeps WAL.</p>`}
    <h2>Database</h2>
    ${server && html`<${Facts} of=${{
      Read: ago(read_at), Size: bytes(server.size_bytes), "WAL written": bytes(server.wal_bytes),
      Connections: `${Object.entries(server.connections).map(([name, number]) => `${count(number)} ${name}`).join(", ")}; at most ${count(server.connections_limit)}`,
      "Oldest transaction": holder(server.oldest),
      "Transactions since the oldest snapshot": `${count(server.xmin_age)}${server.holder ? `, ${snapshot(server.holder)}` : ""}`,
    }} />`}
    <${Scroll} label="Tables"><table><thead><tr><${Heading} by="name" number=${false}>Table<//><${Heading} by="live">Live rows<//>
      <${Heading} by="dead">Dead rows<//><${Heading} by="size">Size<//><${Heading} by="vacuum">Vacuum<//></tr></thead>
      <tbody>${sorted.map((row) => html`<tr key=${row.name}><td>${row.name}</td><td class="number">${count(row.live_rows)}</td>
        <td class="number">${count(row.dead_rows)}</td><td class="number">${bytes(row.size_bytes)}</td>
        <td class="number">${ago(row.vacuumed_at)}</td></tr>`)}</tbody></table><//>
    ${!kept.length && html`<${Empty}>All tables are empty, or the server has no statistics of them yet.<//>`}
    ${replicas.length > 0 && html`<h2>Replicas</h2><${Rows} label="Replicas" of=${replicas.map((row) =>
      ({ name: row.name, lag: time(row.lag_seconds ?? undefined), "not replayed": bytes(row.lag_bytes) }))} />`}
    ${slots.length > 0 && html`<h2>Replication slots</h2><${Rows} label="Replication slots" of=${slots.map((row) =>
      ({ name: row.name, state: row.is_active ? "active" : "inactive", "WAL kept": bytes(row.retained_bytes) }))} />`}`;
}

function Lanes({ of }) {
  const sum = (name, lane) => of[name]?.find((one) => one.labels.lane === lane)?.value || 0;
  const worst = (name, lane) => {
    const buckets = (of[`${name}_bucket`] || []).filter((one) => one.labels.lane === lane);
    const bound = buckets.find((one) => one.value >= 0.99 * buckets.at(-1).value)?.labels.le;
    return bound === "+Inf" ? "longer" : `≤ ${time(Number(bound))}`;
  };
  const rows = (of.lane_flush_duration_seconds_count || []).filter((one) => one.value).map(({ labels: { lane }, value }) => ({
    lane, flushes: count(value), "entries of a flush": (sum("queue_coalescer_flush_batch_size_sum", lane) / value).toFixed(1),
    "mean flush": time(sum("lane_flush_duration_seconds_sum", lane) / value), "99 % of flushes": worst("lane_flush_duration_seconds", lane),
    "mean wait": time(sum("lane_waiting_seconds_sum", lane) / value), "99 % of waits": worst("lane_waiting_seconds", lane),
  }));
  return html`<h2>Write batchers, since the start</h2>
    ${rows.length ? html`<${Rows} label="Write batchers" of=${rows} />` : html`<${Empty}>Nothing was sent, received or deleted since the start.<//>`}`;
}

const Workers = ({ rounds }) => html`<details><summary>Workers: last rounds</summary>
  ${rounds.length ? html`<${Facts} of=${Object.fromEntries(rounds.map(({ labels, value }) => [labels.worker.replaceAll("_", " "), ago(value)]))} />`
    : html`<p>No worker runs in this gateway.</p>`}</details>`;

function Keys({ found }) {
  const [keys] = useLive(() => rest("GET", "/v1/keys?limit=100"), 10, []);
  const [quotas] = useLive(() => rest("GET", "/v1/quotas"), 10, []);
  const asked = (name) => (found[name] || []).map(({ labels, value }) => ({ ...labels, refused: count(value) }));
  const throttled = asked("requests_throttled_total"), refused = asked("quota_refusals_total");
  const held = (found.account_buffered_bytes || []).filter((one) => one.value).map(({ labels, value }) => ({ ...labels, "bytes held": bytes(value) }));
  const limits = (quota) => Object.fromEntries(Object.entries(quota).map(([name, value]) => [name, value === null || typeof value !== "object"
    ? value : Object.values(value).map(count).join(" / ") + " s"]));
  return html`<h2>Keys and quotas</h2>${keys && !keys.length && html`<${Empty}>No key. Create one with <code>queuegate keys create</code>.<//>`}
    ${keys?.length > 0 && html`<${Rows} label="Keys" of=${keys.map((one) => ({ name: one.name ?? one.id, account: one.account_id, kind: one.kind,
      administrator: one.administrator ? "yes" : "no", state: one.disabled_at ? "disabled" : "in use", created_at: one.created_at, expires_at: one.expires_at }))} />`}
    ${quotas?.length > 0 && html`<h3>Quotas</h3><${Rows} label="Quotas" of=${quotas.map(limits)} />`}
    ${throttled.length > 0 && html`<h3>Keys over their rate</h3><${Rows} label="Keys over their rate" of=${throttled} />`}
    ${refused.length > 0 && html`<h3>Accounts at their quota</h3><${Rows} label="Accounts at their quota" of=${refused} />`}
    ${held.length > 0 && html`<h3>Bytes held for accounts</h3><${Rows} label="Bytes held for accounts" of=${held} />`}`;
}

function Audit() {
  const [found, error] = useLive(() => rest("GET", "/_admin/audit?limit=50"), 5, []);
  const rows = (found?.lines || []).map((one) => ({ at: one.at, event: one.event, account: one.account,
    key: one.key ?? one.claimed_key ?? one.access_key ?? one.claimed_access_key, operation: one.operation, resource: one.resource,
    address: one.address, reason: [one.reason, one.statement].filter(Boolean).join(": ") || null, count: one.count }));
  return html`<h2>Audit</h2><${Failure} error=${error} />
    ${found && html`<p>${found.destination === "off" ? "It is off: set QUEUEGATE_AUDIT." : `Written to ${found.destination}. The newest lines of ${
      count(found.processes)} ${found.processes > 1 ? "processes" : "process"} of this gateway, since the start.`}</p>`}
    ${rows.length > 0 && html`<${Rows} label="Audit" of=${rows} />`}
    ${found && found.destination !== "off" && !rows.length && html`<${Empty}>Nothing was changed or refused since the start.<//>`}`;
}

const mayTest = () => session.ephemeral || (session.needs_key && session.administrator);
function Clock() {
  const [clock, error, reload] = useLive(() => rest("GET", `/_admin/clock?account=${session.account}`), 3, []);
  const move = (make) => async (fields) => { await rest("POST", "/_admin/clock", { account: session.account, ...make(fields) }); reload(); };
  if (error || !clock) return null;
  return html`<h2>Clock of ${session.account}</h2><${Facts} of=${{ Now: html`<${Time} at=${clock.now} />`,
      "Ahead in seconds": count(clock.ahead_seconds), Frozen: clock.frozen ? "yes" : "no" }} />
    ${mayTest() && html`<div class="bar"><${Action} label="Advance" title="Advance the clock" run=${move(({ seconds }) => ({ advance_seconds: Number(seconds) }))}>
        <p>Visibility timeouts, delays, retention and schedules of this account follow its clock.</p>
        <${Field} label="Seconds" name="seconds" kind="number" min="1" required /><//>
      <${Action} label=${clock.frozen ? "Let it run" : "Freeze"} title="The clock of this account" run=${move(() => ({ freeze: !clock.frozen }))}>
        <p>${clock.frozen ? "Time passes again." : "Time stands still: nothing becomes due, nothing expires."}</p><//></div>`}`;
}

function Faults() {
  const [found, error, reload] = useLive(() => rest("GET", "/_admin/faults"), 5, []);
  const change = (method, suffix, make) => async (fields) => { await rest(method, `/_admin/faults${suffix}`, make?.(fields)); reload(); };
  const rule = ({ operation, error: code, latency, probability }) => ({ ...(operation && { operation }), ...(code && { error: code }),
    ...(Number(latency) && { latency_ms: Number(latency) }), probability: Number(probability) / 100, account: session.account });
  if (error || !found || !(mayTest() || found.faults.length)) return null;
  return html`<h2>Faults on purpose</h2>
    ${found.faults.length ? found.faults.map((one) => html`<div class="bar" key=${one.id}><code>${JSON.stringify(one)}</code>
        <${Action} label="Remove" title="Remove a fault" run=${change("DELETE", path`/${one.id}`)}><p>Requests meet it no longer.</p><//></div>`)
      : html`<p>No request fails on purpose.</p>`}
    <${Action} label="Add a fault" title="Add a fault" danger run=${change("POST", "", rule)}><p>Requests of account ${session.account} fail or slow down.</p>
      <${Field} label="Operation, such as SendMessage; empty: all" name="operation" /><${Field} label="Error code, such as ThrottlingException" name="error" />
      <${Field} label="Latency in milliseconds" name="latency" kind="number" min="0" max="60000" value="0" />
      <${Field} label="Percent of requests" name="probability" kind="number" min="0" max="100" value="100" /><//>`;
}
