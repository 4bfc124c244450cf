// Schedules of both APIs, and a preview of expressions.

import { html, useState } from "/console/assets/vendor/preact.js";
import { path, rest } from "/console/assets/api.js";
import { Action, Empty, Failure, Field, Rows, Time, useLive } from "/console/assets/parts.js";

export function Schedules() {
  const [own, error, reload] = useLive(() => rest("GET", "/v1/schedules?limit=100"), 5, []);
  const [ofAws] = useLive(async () => (await rest("GET", "/schedules")).Schedules, 5, []);
  return html`<h1>Schedules</h1><${Failure} error=${error} />
    ${own && ofAws && !own.length && !ofAws.length && html`<${Empty}>This account has no schedule.<//>`}
    ${own?.length > 0 && html`<h2>Of the native API</h2><${Rows} label="Of the native API" of=${own.map((one) => ({
      name: one.name, expression: one.human_readable, status: one.status, next_fire_at: one.next_fire_at,
      failures: one.failure_count, last_error: one.last_error }))} />
      <div class="bar">${own.map((one) => html`<${Action} label=${`Run ${one.name} now`} title=${`Run ${one.name} now`}
        run=${async () => { await rest("POST", path`/v1/schedules/${one.name}/runs`); reload(); }}>
        <p>It fires once, now. Its fire times stay as they are.</p><//>`)}</div>`}
    ${ofAws?.length > 0 && html`<h2>Of EventBridge Scheduler</h2><${Rows} label="Of EventBridge Scheduler" of=${ofAws.map((one) => ({
      name: one.Name, group: one.GroupName, state: one.State, target: one.Target.Arn }))} />`}
    <${Preview} />`;
}

function Preview() {
  const [times, setTimes] = useState(null);
  const [error, setError] = useState(null);
  const ask = async (event) => {
    event.preventDefault();
    try {
      const { form, expression, timezone } = Object.fromEntries(new FormData(event.target));
      setTimes(await rest("POST", "/v1/previews", { [form]: expression, timezone }));
      setError(null);
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<h2>Preview an expression</h2><form class="bar" onSubmit=${ask}>
      <label class="field"><span>Form</span><select name="form">
        <option value="when">words, as "every weekday at 9am"</option><option value="cron">cron, as "0 9 * * 1-5"</option>
        <option value="every">interval, as "15m"</option></select></label>
      <${Field} label="Expression" name="expression" required />
      <${Field} label="Time zone" name="timezone" value=${Intl.DateTimeFormat().resolvedOptions().timeZone} />
      <button>Show its times</button></form>
    <${Failure} error=${error} />${times && html`<p>${times.human_readable}</p>
      <ul>${times.next_fires.map((one) => html`<li><${Time} at=${one} /></li>`)}</ul>`}`;
}
