// Schedules of both APIs: their next times on a line, and a preview of expressions.

import { html, useState } from "/console/assets/vendor/preact.js";
import { path, rest } from "/console/assets/api.js";
import {
  Action, Empty, Failure, Field, Scroll, Time, count, plain, useAnswer, useLive,
} from "/console/assets/parts.js";

// The face of EventBridge Scheduler may be switched off, or not be for this key.
function withoutFace(error) {
  if (!(error.status < 500)) throw error;
  return { Schedules: [] };
}

async function load() {
  const [own, ofAws, { now, fires }] = await Promise.all([
    rest("GET", "/v1/schedules?limit=100"), rest("GET", "/schedules").catch(withoutFace), rest("GET", "/v1/fires"),
  ]);
  const next = (name, group) => fires.find((one) => one.schedule === name && one.group === group)?.at;
  return {
    now, fires,
    rows: [...own.map((one) => ({
      name: one.name, group: null, when: one.human_readable, isActive: one.status === "active", next: next(one.name, null),
      failures: one.failure_count, error: one.last_error,
    })), ...ofAws.Schedules.map((one) => ({
      name: one.Name, group: one.GroupName, when: one.Target.Arn, isActive: one.State === "ENABLED", next: next(one.Name, one.GroupName),
    }))],
  };
}

// Pause or resume a schedule of EventBridge Scheduler, whose updates replace everything.
async function changeOfAws(name, group, State) {
  const place = `${path`/schedules/${name}`}?${new URLSearchParams({ groupName: group })}`;
  const { Arn, Name, CreationDate, LastModificationDate, ...kept } = await rest("GET", place);
  await rest("PUT", path`/schedules/${name}`, { ...kept, State });
}

export function Schedules() {
  const [found, error, reload] = useLive(load, 5, []);
  const change = ({ name, group, isActive }) => async () => {
    if (group) await changeOfAws(name, group, isActive ? "DISABLED" : "ENABLED");
    else await rest("PATCH", path`/v1/schedules/${name}`, { status: isActive ? "paused" : "active" });
    reload();
  };
  const runNow = ({ name, group }) => async () => {
    await rest("POST", `${path`/v1/schedules/${name}/runs`}?${new URLSearchParams(group ? { group } : {})}`);
    reload();
  };
  return html`<h1>Schedules</h1><${Failure} error=${error} />
    ${found && !found.rows.length && html`<${Empty}>This account has no schedule. Create one with <code>POST /v1/schedules</code>, or with CreateSchedule of any SDK.<//>`}
    ${found?.rows.length > 0 && html`<${TimeLine} now=${Date.parse(found.now)} fires=${found.fires} />
      <${Scroll} label="Schedules"><table><thead><tr><th scope="col">Name</th><th scope="col">When or target</th><th scope="col">Status</th>
        <th scope="col">Next time</th><th scope="col">Failures</th><th scope="col">Action</th></tr></thead><tbody>${found.rows.map((one) => html`
        <tr key=${`${one.group}/${one.name}`}><td>${one.name}${one.group && html` <span class="tag">${one.group}</span>`}</td><td class="body">${one.when}</td>
          <td><span class=${`tag ${one.isActive ? "good" : "bad"}`}>${one.isActive ? "active" : "paused"}</span></td><td><${Time} at=${one.next} /></td>
          <td class="body">${one.failures ? `${count(one.failures)}: ${plain(one.error || "")}` : "–"}</td>
          <td><div class="bar"><${Action} label="Run now" title=${`Run ${one.name} now`} run=${runNow(one)}>
              <p>It fires once, now. Its fire times stay as they are.</p><//>
            <${Action} label=${one.isActive ? "Pause" : "Resume"} title=${`${one.isActive ? "Pause" : "Resume"} ${one.name}`} run=${change(one)}>
              <p>${one.isActive ? "It does not fire until it is resumed." : "It fires again. Times of the pause are fired only with catch-up."}</p><//></div></td>
        </tr>`)}</tbody></table><//>`}
    <${Preview} />`;
}

const SPANS = { hour: 3600, day: 86400, week: 7 * 86400, month: 31 * 86400 };
const ROW = 22, LEFT = 180, WIDTH = 800;

// The next times of each schedule, as points between now and the end of the span.
function TimeLine({ now, fires }) {
  const [span, setSpan] = useState("day");
  const length = SPANS[span] * 1000;
  const shown = fires.filter((one) => Date.parse(one.at) < now + length).map((one) => (
    { at: Date.parse(one.at), name: one.group ? `${one.group}/${one.schedule}` : one.schedule }));
  const names = [...new Set(shown.map((one) => one.name))].slice(0, 30);
  const timesOf = (name) => shown.filter((one) => one.name === name).map((one) => one.at);
  const text = (at) => new Date(at).toLocaleString();
  const place = (at) => LEFT + ((WIDTH - LEFT - 10) * Math.max(0, at - now)) / length;
  const height = ROW * (names.length + 1);
  return html`<h2>Next times</h2><div class="tabs">${Object.keys(SPANS).map((one) => html`
      <button aria-pressed=${one === span} onClick=${() => setSpan(one)}>${one}</button>`)}</div>
    ${names.length ? html`<${Scroll} label="Time line"><svg class="line" viewBox=${`0 0 ${WIDTH} ${height}`} role="img"
      aria-label=${`The next ${span}: ${names.map((name) => `${name} at ${timesOf(name).map(text).join(", ")}`).join("; ")}`}>
      ${[0, 0.25, 0.5, 0.75].map((part) => html`<g><line x1=${place(now + part * length)} x2=${place(now + part * length)} y1="16" y2=${height} />
        <text x=${place(now + part * length)} y="12">${new Date(now + part * length).toLocaleString([], {
          hour: "2-digit", minute: "2-digit", ...(length > 86400000 && { day: "numeric", month: "short" }) })}</text></g>`)}
      ${names.map((name, row) => html`<text x="0" y=${ROW * (row + 2) - 6}>${name.length > 24 ? `${name.slice(0, 23)}…` : name}</text>
        ${timesOf(name).map((at) => html`<circle cx=${place(at)} cy=${ROW * (row + 2) - 10} r="5"><title>${name}: ${text(at)}</title></circle>`)}`)}</svg><//>`
      : html`<${Empty}>Nothing fires within this ${span}.<//>`}`;
}

function Preview() {
  const [times, error, submit] = useAnswer(({ form, expression, timezone }) =>
    rest("POST", "/v1/previews", { [form]: expression, timezone }));
  return html`<h2>Preview an expression</h2><form class="bar" onSubmit=${submit}>
      <label class="field"><span>Form</span><select name="form">
        <option value="when">words, as "every weekday at 9am"</option><option value="cron">cron, as "0 9 * * 1-5"</option>
        <option value="every">interval, as "15m"</option></select></label>
      <${Field} label="Expression" name="expression" required />
      <${Field} label="Time zone" name="timezone" value=${Intl.DateTimeFormat().resolvedOptions().timeZone} />
      <button>Show its times</button></form>
    <${Failure} error=${error} />${times && html`<p>${times.human_readable}</p>
      <ul>${times.next_fires.map((one) => html`<li><${Time} at=${one} /></li>`)}</ul>`}`;
}
