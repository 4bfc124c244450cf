// The console: signs in, shows the navigation, and the view of the address.

import { html, render, useEffect, useState } from "/console/assets/vendor/preact.js";
import {
  choosePlace, loadSession, readPlace, regions, session, signIn, signOut,
} from "/console/assets/api.js";
import { Failure, Field, Link, useLive } from "/console/assets/parts.js";

const NAVIGATION = [
  ["", "Overview"], ["queues", "Queues"], ["topics", "Topics"], ["channels", "Channels"], ["logs", "Logs"],
  ["schedules", "Schedules"], ["operate", "Operate"],
];

// By section: the script and the part that list it, and those that show one of its things.
const VIEWS = {
  "": [["overview", "Overview", ""]],
  queues: [["overview", "Overview", "queue"], ["queue", "QueueView"]],
  topics: [["overview", "Overview", "topic"], ["topics", "OneTopic"]],
  channels: [["overview", "Overview", "channel"], ["streams", "OneChannel"]],
  logs: [["overview", "Overview", "log"], ["streams", "OneLog"]],
  schedules: [["schedules", "Schedules"]], operate: [["operate", "Operate"]],
};

function View({ parts }) {
  const [section, name] = parts;
  const [script, part, kind] = VIEWS[section]?.[name ? 1 : 0] || [];
  // A script is loaded when its view is first shown.
  const [loaded, error] = useLive(() => script && import(`/console/assets/${script}.js`), 0, [script]);
  if (!script) return html`<h1>There is no such view</h1><p><${Link} to="/console/">Overview<//></p>`;
  const Shown = loaded?.[part];
  if (!Shown) return html`<${Failure} error=${error} />`;
  return html`<${Shown} key=${`${session.account}/${session.region}/${parts.join("/")}`} name=${name || kind} />`;
}

function SignIn({ done }) {
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    try {
      const { key, secret } = Object.fromEntries(new FormData(event.target));
      await signIn(key.trim(), secret.trim());
      done();
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<main id="main" class="sign-in"><h1>Queuegate</h1>
    <form onSubmit=${submit}>
      <${Field} label="A key of this gateway (queuegate keys create), or the id of an access key" name="key"
        kind="password" required autocomplete="username" />
      <${Field} label="The secret of the access key" name="secret" kind="password" autocomplete="current-password" />
      <${Failure} error=${error} />
      <button class="primary">Sign in</button>
    </form></main>`;
}

// The account and region that the views show. Keys of administrators show all accounts.
function Place({ changed }) {
  const leave = async () => { await signOut(); changed(); };
  const choose = (account, region) => {
    if (!/^\d{12}$/.test(account)) return;
    choosePlace(account, region);
    changed();
  };
  return html`${session.administrator ? html`
      <label>Account <input list="accounts" size="13" inputmode="numeric" pattern="[0-9]{12}"
        value=${session.account} onChange=${(event) => choose(event.target.value, session.region)} /></label>
      <datalist id="accounts">${Object.keys(session.accounts).map((one) => html`<option value=${one} />`)}</datalist>`
    : html`<span>${session.account}</span>`}
    <label>Region <select onChange=${(event) => choose(session.account, event.target.value)}>
      ${regions().map((one) => html`<option value=${one} selected=${one === session.region}>${one}</option>`)}</select></label>
    ${session.needs_key && html`<button onClick=${leave}>Sign out</button>`}`;
}

function Console() {
  const [, redraw] = useState(0);
  const again = () => redraw((number) => number + 1);
  useEffect(() => {
    const move = () => { readPlace(); again(); };
    addEventListener("popstate", move);
    return () => removeEventListener("popstate", move);
  }, []);
  if (!session.account) return html`<${SignIn} done=${again} />`;
  const parts = location.pathname.replace(/^\/console\/?/, "").split("/").map(decodeURIComponent);
  const current = parts[0];
  document.title = `${parts[1] || NAVIGATION.find(([path]) => path === current)?.[1] || ""} – Queuegate`;
  return html`<header class="top"><strong>Queuegate</strong>
      <nav aria-label="Views">${NAVIGATION.map(([to, label]) => html`
        <${Link} to=${`/console/${to}`} aria-current=${to === current ? "page" : undefined}>${label}<//>`)}
        <a href="/docs">Docs</a></nav>
      ${session.read_only && html`<span class="tag">read-only</span>`}
      <${Place} changed=${again} /></header>
    <main id="main"><${View} parts=${parts} /></main>`;
}

const app = document.getElementById("app");
try {
  await loadSession();
  app.replaceChildren();
  render(html`<${Console} />`, app);
} catch (error) {
  app.textContent = `The console cannot reach its gateway: ${error.message}`;
}
