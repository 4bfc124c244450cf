// Parts of views: tables, charts, dialogs, times, and hooks that load and refresh.

import { html, useEffect, useRef, useState } from "/console/assets/vendor/preact.js";
import { follow, placeHash, session } from "/console/assets/api.js";

// Navigate to another view of the console without loading the page. `place`: its account and region.
export function go(to, place = session) {
  history.pushState(null, "", to + placeHash(place));
  dispatchEvent(new PopStateEvent("popstate"));
}

export function Link({ to, place, children, ...rest }) {
  const follow = (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    go(to, place);
  };
  return html`<a href=${to + placeHash(place)} onClick=${follow} ...${rest}>${children}</a>`;
}

// Return [value, error, reload]. `load` runs at once, when `keys` change, and every `seconds` while
// the page is visible.
export function useLive(load, seconds, keys) {
  const [state, set] = useState([undefined, null]);
  const run = useRef(0);
  const reload = async () => {
    const mine = ++run.current;
    try {
      const value = await load();
      if (mine === run.current) set([value, null]);
    } catch (error) {
      if (mine === run.current) set(([before]) => [before, error]);
    }
  };
  useEffect(() => {
    reload();
    if (!seconds) return undefined;
    const timer = setInterval(() => document.hidden || reload(), seconds * 1000);
    return () => clearInterval(timer);
  }, keys);
  useEffect(() => () => { run.current = -1; }, []);
  return [...state, reload];
}

const AGAIN_MS = 2000;
const SILENT_MS = 60000;
const NAMES = ["kind", "account", "region", "name", "visible", "flight", "delayed", "oldest", "sent", "finished", "dead", "waiting", "read", "paused"];

// Return [figures, error] of a query: rows by key, the first row, and what else the last event said.
// Reconnects when the stream ends. A hidden page needs no stream.
export function useStream(query) {
  const [state, set] = useState([undefined, null]);
  const wanted = new URLSearchParams(query).toString();
  useEffect(() => {
    let rows = new Map(), stop = new AbortController(), again = 0, isOver = false;
    const use = ({ rows: changed, whole, ...rest }) => {
      clearTimeout(again);
      again = setTimeout(() => stop.abort(), SILENT_MS);
      if (whole) rows = new Map();
      for (const row of changed || []) {
        const key = row.slice(0, 4).join("/");
        rows.set(key, { key, ...Object.fromEntries(NAMES.map((name, at) => [name, row[at]])) });
      }
      set(([before]) => (rest.error ? [before, new Error(rest.error)] : [{ ...rest, rows, row: rows.values().next().value }, null]));
    };
    const run = async () => {
      let failure = null;
      stop = new AbortController();
      try {
        if (!document.hidden) await follow(wanted, stop.signal, use);
      } catch (error) {
        if (error.name !== "AbortError") failure = error.status ? error : new Error("The gateway does not answer. Trying again …");
      }
      clearTimeout(again);
      if (isOver) return;
      if (failure) set(([before]) => [before, failure]);
      // A refusal stays one: the queue or the right is gone.
      if (!(failure?.status < 500)) again = setTimeout(run, AGAIN_MS);
    };
    const turn = () => document.hidden && stop.abort();
    addEventListener("visibilitychange", turn);
    run();
    return () => { isOver = true; removeEventListener("visibilitychange", turn); clearTimeout(again); stop.abort(); };
  }, [wanted]);
  return state;
}

// Return [values, change]: values that the address keeps, so that it can be shared.
export function useAddress(initial) {
  const read = () => ({ ...initial, ...Object.fromEntries(new URLSearchParams(location.search)) });
  const [values, set] = useState(read);
  const change = (more) => {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(more)) {
      if (value && value !== initial[name]) query.set(name, value); else query.delete(name);
    }
    const text = query.toString();
    history.replaceState(null, "", `${location.pathname}${text && `?${text}`}${location.hash}`);
    set((before) => ({ ...before, ...more }));
  };
  return [values, change];
}

export function Failure({ error }) {
  return error && html`<p class="failure" role="alert">${error.message}</p>`;
}

export function Empty({ children }) {
  return html`<div class="empty">${children}</div>`;
}

export const count = (value) => (value === null || value === undefined ? "–" : value.toLocaleString());
export const rate = (value) => (value ? `${value < 0.1 ? "<0.1" : value < 10 ? value.toFixed(1) : Math.round(value)}/s` : "–");

// Return the text with its marks of direction as escapes, which otherwise let it look like another.
export const plain = (text) => text.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
  (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);

export function age(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const steps = [[86400, "d"], [3600, "h"], [60, "min"]];
  const [size, unit] = steps.find(([least]) => seconds >= 2 * least) || [1, "s"];
  return `${Math.floor(seconds / size)} ${unit}`;
}

// Show a time in the zone of the reader, with UTC on hover.
export function Time({ at }) {
  if (!at) return "–";
  const time = new Date(typeof at === "string" && /^\d+$/.test(at) ? Number(at) : at);
  if (Number.isNaN(time.getTime())) return String(at);
  return html`<time datetime=${time.toISOString()} title=${time.toISOString()}>${time.toLocaleString()}</time>`;
}

// Return [rows in order, a header cell that sorts]. `columns`: name -> value of a row to sort by;
// `order`: a name, with a minus to begin with the highest; `set` keeps another one.
export function useSorting(rows, columns, order, set) {
  const down = order.startsWith("-");
  const name = order.replace("-", "") in columns ? order.replace("-", "") : Object.keys(columns)[0];
  const value = columns[name];
  const sorted = [...rows].sort((one, other) => {
    const a = value(one) ?? -1, b = value(other) ?? -1;
    return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
  });
  const Heading = ({ by, children, number = true }) => html`
    <th scope="col" class=${number ? "number" : ""} aria-sort=${by === name ? (down ? "descending" : "ascending") : "none"}>
      <button class="plain" onClick=${() => set(`${(by === name ? !down : number) ? "-" : ""}${by}`)}>
        ${children}${by === name ? (down ? " ↓" : " ↑") : ""}</button></th>`;
  return [sorted, Heading];
}

// A region that scrolls sideways, by keyboard, too.
export function Scroll({ label, children }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}>${children}</div>`;
}

// Buttons to the earlier and the later page of a list. `pages`: the places of the pages so far.
export function Turn({ pages, next, turn, what }) {
  return html`<div class="bar">${pages.length > 1 && html`<button onClick=${() => turn(pages.slice(0, -1))}>Earlier ${what}</button>`}
    ${next && html`<button onClick=${() => turn([...pages, next])}>Later ${what}</button>`}</div>`;
}

export function Sparkline({ values, label }) {
  if (values.length < 2) return html`<svg class="spark" width="90" height="20" role="img" aria-label=${label}></svg>`;
  const most = Math.max(1, ...values);
  const points = values.map((value, at) =>
    `${((at * 88) / (values.length - 1) + 1).toFixed(1)},${(19 - (value * 18) / most).toFixed(1)}`);
  return html`<svg class="spark" width="90" height="20" role="img" aria-label=${label}>
    <polyline points=${points.join(" ")} /></svg>`;
}

let drawing = null;

function loadCharts() {
  drawing ??= new Promise((resolve, reject) => {
    const sheet = document.createElement("link");
    sheet.rel = "stylesheet";
    sheet.href = "/console/assets/vendor/uplot.css";
    const script = document.createElement("script");
    script.src = "/console/assets/vendor/uplot.js";
    script.onload = () => resolve(window.uPlot);
    script.onerror = () => reject(new Error("The charts cannot be loaded."));
    document.head.append(sheet, script);
  });
  return drawing;
}

const COLOURS = ["#2f7fe0", "#d9822b", "#3a9d5d", "#b3479b"];

// Draw lines over time. `times`: seconds; `lines`: [{label, values}].
export function Chart({ title, times, lines }) {
  const place = useRef(null);
  const chart = useRef(null);
  const data = [times, ...lines.map((line) => line.values)];
  useEffect(() => {
    let gone = false;
    loadCharts().then((Plot) => {
      if (gone) return;
      const text = getComputedStyle(place.current).color;
      const axis = { stroke: text, grid: { stroke: "#8883" }, ticks: { stroke: "#8883" } };
      chart.current = new Plot({
        width: Math.max(280, place.current.clientWidth), height: 200, axes: [axis, axis],
        scales: { y: { range: (_, low, high) => [Math.min(0, low), Math.max(1, high)] } },
        series: [{}, ...lines.map((line, at) => ({ label: line.label, stroke: COLOURS[at], width: 2 }))],
      }, data, place.current);
    });
    return () => { gone = true; chart.current?.destroy(); };
  }, []);
  useEffect(() => { chart.current?.setData(data); }, [times.length, times.at(-1)]);
  return html`<figure><figcaption>${title}</figcaption><div ref=${place} class="chart"></div></figure>`;
}

// A button that opens a dialog. The dialog says what happens, and does it when it is confirmed.
// `run` gets the form's fields. A text that it returns is shown, and the dialog stays open.
export function Action({ label, title, children, run, confirm = label, danger = false, disabled = false, changes = true }) {
  const dialog = useRef(null);
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const [said, setSaid] = useState("");
  if (changes && session.read_only) return null;
  const open = () => { setError(null); setSaid(""); dialog.current.firstChild.reset(); dialog.current.showModal(); };
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const text = await run(Object.fromEntries(new FormData(event.target)));
      if (typeof text === "string") setSaid(text); else dialog.current.close();
    } catch (failure) {
      setError(failure);
    }
    setBusy(false);
  };
  return html`<button class=${danger ? "danger" : ""} onClick=${open} disabled=${disabled}>${label}</button>
    <dialog ref=${dialog} aria-label=${title}><form onSubmit=${submit}>
      <h2>${title}</h2>${children}<${Failure} error=${error} />${said && html`<p role="status">${said}</p>`}
      <div class="buttons">
        <button type="button" onClick=${() => dialog.current.close()}>Cancel</button>
        <button class=${danger ? "danger" : "primary"} disabled=${isBusy}>${confirm}</button>
      </div></form></dialog>`;
}

// Return [answer, error, submit] of a form: `ask` gets its fields, and the answer stays until the
// next one.
export function useAnswer(ask) {
  const [state, set] = useState([null, null]);
  const submit = async (event) => {
    event.preventDefault();
    try {
      set([await ask(Object.fromEntries(new FormData(event.target))), null]);
    } catch (error) {
      set([null, error]);
    }
  };
  return [...state, submit];
}

// A field keeps what is typed while its view is drawn again, so `value` is only its first one.
export function Field({ label, name, kind = "text", value = "", ...rest }) {
  const input = kind === "area"
    ? html`<textarea name=${name} rows="6" defaultValue=${value} ...${rest}></textarea>`
    : html`<input type=${kind} name=${name} defaultValue=${value} ...${rest} />`;
  return html`<label class="field"><span>${label}</span>${input}</label>`;
}

export function Facts({ of }) {
  return html`<dl class="facts">${Object.entries(of).map(([name, value]) => html`
    <div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

// A table of whatever members the rows have.
export function Rows({ of, label }) {
  const names = [...new Set(of.flatMap((row) => Object.keys(row).filter((key) => typeof row[key] !== "object" || row[key] === null)))];
  return html`<${Scroll} label=${label}><table><thead><tr>${names.map((one) => html`<th scope="col">${one.replaceAll("_", " ")}</th>`)}</tr></thead>
    <tbody>${of.map((row) => html`<tr>${names.map((one) => html`<td class=${`body ${String(row[one]).length > 24 ? "" : "short"}`}>${row[one] === null || row[one] === undefined ? "–"
      : /(^|_)at$/.test(one) ? html`<${Time} at=${row[one]} />` : plain(String(row[one]))}</td>`)}</tr>`)}</tbody></table><//>`;
}

// Keep the samples of a page: at most 300 of [seconds, ...numbers].
export function useSamples(sample) {
  const kept = useRef([]);
  if (sample && kept.current.at(-1)?.[0] !== sample[0]) kept.current = [...kept.current.slice(-299), sample];
  return kept.current;
}
