// The gateway itself: readiness, clock, keys and quotas.

import { html } from "/console/assets/vendor/preact.js";
import { rest, session } from "/console/assets/api.js";
import { Action, Empty, Facts, Failure, Field, Scroll, Time, count, useLive } from "/console/assets/parts.js";

export function Operate() {
  const [ready, error] = useLive(async () => {
    const answer = await fetch("/readyz");
    return answer.json();
  }, 3, []);
  return html`<h1>Operate</h1><${Failure} error=${error} />
    ${ready && html`<${Facts} of=${{
      State: html`<span class=${`tag ${ready.status === "ok" ? "good" : "bad"}`}>${ready.status}</span> ${ready.reason || ready.warning || ""}`,
      Version: session.version, Region: session.region, Data: session.ephemeral ? "ephemeral" : "kept",
    }} />`}
    <${Clock} /><${Keys} /><${Quotas} />`;
}

function Clock() {
  const [clock, error, reload] = useLive(() => rest("GET", `/_admin/clock?account=${session.account}`), 3, []);
  const move = (body) => async (fields) => {
    await rest("POST", "/_admin/clock", { account: session.account, ...(body || { advance: Number(fields.seconds) }) });
    reload();
  };
  if (error) return null;
  return html`<h2>Clock of ${session.account}</h2>
    ${clock && html`<${Facts} of=${{ Now: html`<${Time} at=${clock.now} />`, "Ahead in seconds": count(clock.ahead_seconds),
      Frozen: clock.frozen ? "yes" : "no" }} />
      ${session.ephemeral && html`<div class="bar"><${Action} label="Advance" title="Advance the clock" run=${move()}>
        <p>Visibility timeouts, delays, retention and schedules of this account follow its clock.</p>
        <${Field} label="Seconds" name="seconds" kind="number" min="1" required /><//></div>`}`}`;
}

function Keys() {
  const [keys, error] = useLive(() => rest("GET", "/v1/keys?limit=100"), 10, []);
  if (error) return null;
  return html`<h2>Keys</h2>${keys && !keys.length && html`<${Empty}>No key. Create one with <code>queuegate keys create</code>.<//>`}
    ${keys?.length > 0 && html`<${Scroll} label="Keys"><table><thead><tr><th scope="col">Name</th><th scope="col">Account</th><th scope="col">Created</th>
      <th scope="col">Last use</th></tr></thead><tbody>${keys.map((one) => html`<tr key=${one.id}><td>${one.name ?? one.id}</td>
        <td>${one.account ?? "–"}</td><td><${Time} at=${one.created_at} /></td><td><${Time} at=${one.last_used_at} /></td></tr>`)}</tbody></table><//>`}`;
}

function Quotas() {
  const [quotas, error] = useLive(() => rest("GET", "/v1/quotas"), 10, []);
  if (error || !quotas?.length) return null;
  return html`<h2>Quotas</h2><pre>${JSON.stringify(quotas, null, 2)}</pre>`;
}
