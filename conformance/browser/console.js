// Visits the console as a person does, and prints what went wrong as JSON: {check: fault}, with an
// empty fault where nothing did. Arguments: the endpoint, the browser, a folder for pictures, and an
// endpoint whose console is read-only.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";

const require = createRequire(join(process.env.NODE_PATH, "_"));
const puppeteer = require("puppeteer-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const [endpoint, program, pictures, reading] = process.argv.slice(2);

const VIEWS = {
  overview: "", accounts: "?accounts=all", queues: "queues", queue: "queues/orders", charts: "queues/orders?tab=charts", attributes: "queues/orders?tab=attributes",
  receivers: "queues/idle?tab=receivers", events: "queues/orders?tab=events", dead: "queues/jobs-dead",
  subscriptions: "queues/orders?tab=subscriptions", topics: "topics", topic: "topics/news", logs: "logs",
  hooks: "topics/hooks", log: "logs/audit", group: "logs/audit?group=billing", channels: "channels", channel: "channels/alerts", schedules: "schedules", operate: "operate", absent: "nowhere",
};
const outcomes = {};
const args = process.getuid() === 0 ? ["--no-sandbox"] : [];
const browser = await puppeteer.launch({ executablePath: program, args, pipe: true, protocolTimeout: 60_000 });
const page = await browser.newPage();
// Count requests in the page: the browser's own count includes those that a navigation has cut off.
await page.evaluateOnNewDocument(() => {
  const ask = window.fetch;
  Object.assign(window, { pending: 0, answered: Infinity });
  window.fetch = (...wanted) => {
    window.pending += 1;
    return ask(...wanted).finally(() => Object.assign(window, { pending: window.pending - 1, answered: performance.now() }));
  };
});
page.setDefaultTimeout(15000);
let complaints = [];
page.on("console", (line) => ["error", "warn"].includes(line.type()) && complaints.push(line.text()));
// A page that has crashed answers nothing: fail at once.
page.on("error", (error) => { throw error; });
page.on("pageerror", (error) => complaints.push(error.message));

async function check(name, act) {
  complaints = [];
  try {
    await act();
    outcomes[name] = complaints.join("; ");
  } catch (error) {
    outcomes[name] = [error.message, ...complaints].join("; ");
  }
}

const button = (label) => page.locator(`::-p-xpath(//button[not(ancestor::dialog)][normalize-space()="${label}"])`);
const inDialog = (selector) => page.locator(`dialog[open] ${selector}`);
const confirm = () => page.locator("dialog[open] .buttons button:last-child").click();
const shows = (text) => page.waitForFunction((wanted) => document.body.innerText.includes(wanted), {}, text);

// Call an action of SQS as a client beside the page.
const sqs = (action, members) => fetch(endpoint, {
  method: "POST", body: JSON.stringify(members),
  headers: { authorization: "Bearer 000000000000", "content-type": "application/x-amz-json-1.0", "x-amz-target": `AmazonSQS.${action}` },
});

async function visit(view, at = endpoint) {
  await page.goto(`${at}/console/${view}`);
  await page.waitForSelector("h1, .empty");
  await page.waitForFunction(() => window.pending === 0 && performance.now() > window.answered + 200);
}

const waiting = sqs("ReceiveMessage", { QueueUrl: "idle", WaitTimeSeconds: 20 }).then((answer) => answer.json());
await check("shows who waits, and follows without loading again", async () => {
  await visit("queues/idle?tab=receivers");
  await shows("127.0.0.1");
  await page.screenshot({ path: join(pictures, "waiting.png") });
  await visit("");
  await shows("1 waiting");
  await page.evaluate(() => { window.isSame = true; });
  await sqs("SendMessage", { QueueUrl: "idle", MessageBody: "at last" });
  await shows("s ago");
  if (!(await waiting).Messages || !(await page.evaluate(() => window.isSame))) throw new Error("it loaded again");
});

await check("needs at most 100 KB for the first page", async () => {
  await page.setCacheEnabled(false);
  await visit("");
  const bytes = await page.evaluate(() => performance.getEntries().reduce((sum, one) => sum + (one.transferSize || 0), 0));
  await page.setCacheEnabled(true);
  if (!(bytes > 20_000 && bytes < 100_000)) throw new Error(`${bytes} bytes`);
});

for (const [width, theme] of [[1200, "light"], [390, "dark"]]) {
  await page.setViewport({ width, height: 900 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
  for (const [name, view] of Object.entries(VIEWS)) {
    await check(`${name} in ${theme} at ${width} pixels`, async () => {
      await visit(view);
      await page.screenshot({ path: join(pictures, `${name}-${theme}.png`) });
      await page.evaluate(axe);
      const found = await page.evaluate(async () => (await window.axe.run()).violations.map(
        (one) => `${one.impact} ${one.id}: ${one.nodes[0].html}`));
      if (found.length) throw new Error(found.join("; "));
      const isWide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
      if (isWide) throw new Error("the page is wider than the screen");
    });
  }
}

await page.setViewport({ width: 1200, height: 900 });
await check("shows hostile bodies as text", async () => {
  await visit("queues/orders");
  await shows("<script>window.wrong = 1</script>");
  if (await page.evaluate(() => window.wrong)) throw new Error("a body ran as a script");
});
await check("sends a message", async () => {
  await button("Send a message").click();
  await inDialog("[name=body]").fill('{"by": "console"}');
  await inDialog("[name=attributes]").fill("kind=new");
  await confirm();
  await shows('{"by": "console"}');
});
await check("shows one message, and closes it by keyboard", async () => {
  await page.locator("tbody tr:last-child td button").click();
  await page.waitForSelector("dialog[open] pre");
  await page.locator('::-p-xpath(//dialog[@open]//button[normalize-space()="hex"])').click();
  await shows("7b 22 62 79 22 3a 20 22");
  await page.screenshot({ path: join(pictures, "message.png") });
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !document.querySelector("dialog[open]"));
});
await check("deletes one message after it has asked", async () => {
  await page.locator("tbody tr:last-child td button").click();
  const inMessage = (label) => page.locator(`::-p-xpath(//dialog[@open]//button[normalize-space()="${label}"])`);
  await inMessage("Delete this message").click();
  await inMessage("It cannot be undone: delete it").click();
  await page.waitForFunction(() => !document.body.innerText.includes('{"by": "console"}'));
});
await check("keeps what is typed while the queue changes", async () => {
  await button("Send a message").click();
  await inDialog("[name=body]").fill("half a sentence");
  await sqs("SendMessage", { QueueUrl: "orders", MessageBody: '{"by": "somebody else"}' });
  await shows("somebody else");
  const typed = await page.$eval("dialog[open] [name=body]", (input) => input.value);
  if (typed !== "half a sentence") throw new Error(`it is "${typed}" now`);
  await page.keyboard.press("Escape");
});
await check("shows marks of direction as escapes", () => shows("\\u202etxt.exe"));
await check("filters by body, attribute and count, and keeps that in the address", async () => {
  const label = (text) => page.locator(`::-p-xpath(//label[contains(., "${text}")]/input)`);
  await label("Body contains").fill('"order": 7');
  await page.keyboard.press("Enter");
  await shows("Search again");
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
  await visit(`queues/jobs-dead?attribute=${encodeURIComponent("kind=job 2*")}`);
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
  await visit("queues/jobs-dead?attribute=kind%3Djob&receives=9");
  await shows("Change the filter.");
});
await check("counts chosen dead letters, then moves them at a rate", async () => {
  await visit("queues/jobs-dead");
  await button("Choose all").click();
  await button("Redrive the chosen ones").click();
  await inDialog("[name=dry_run]").click();
  await confirm();
  await shows("Would move 2 of 2.");
  await inDialog("[name=dry_run]").click();
  await inDialog("[name=rate]").fill("1");
  await confirm();
  await shows("Moved 2 of 2.");
  await page.screenshot({ path: join(pictures, "redrive.png") });
  await visit("queues/jobs");
  await shows("job 2");
});
await check("records events, and tells the story of a message", async () => {
  await visit("queues/idle?tab=events");
  await button("Record events").click();
  await confirm();
  await shows("Nothing has happened since.");
  await sqs("SendMessage", { QueueUrl: "idle", MessageBody: "with a story" });
  await shows("sent");
  await page.screenshot({ path: join(pictures, "story.png") });
  await visit("queues/idle");
  await page.locator("tbody tr:last-child td button").click();
  await page.waitForFunction(() => document.querySelector("dialog[open] [aria-label=Events]"));
  await page.keyboard.press("Escape");
});
await check("changes the visibility of a message", async () => {
  await page.locator("tbody tr:last-child td button").click();
  await inDialog(".buttons input").fill("600");
  await page.locator('::-p-xpath(//dialog[@open]//button[normalize-space()="Change visibility"])').click();
  await page.waitForFunction(() => document.querySelector("tbody tr:last-child .tag")?.innerText === "delayed");
});
await check("works in other regions and accounts, which the address keeps", async () => {
  await page.goto(`${endpoint}/console/queues#000000000007/eu-west-1`);
  await page.reload();
  await shows("This account has no queue here.");
  await button("Create a queue").click();
  await inDialog("[name=name]").fill("abroad");
  await confirm();
  await page.waitForFunction(() => location.hash === "#000000000007/eu-west-1" && location.pathname.endsWith("/abroad"));
  await button("Send a message").click();
  await inDialog("[name=body]").fill("far away");
  await confirm();
  await shows("far away");
  await page.screenshot({ path: join(pictures, "abroad.png") });
  await page.locator("header input").fill("000000000000");
  await page.keyboard.press("Enter");
  await page.select("header select", "us-east-1");
  await page.waitForFunction(() => !location.hash);
  // The account without the queue refused its view.
  complaints = complaints.filter((text) => !/status of 40[04]/.test(text));
});
await visit("queues/orders");
await check("pauses and resumes", async () => {
  await button("Pause").click();
  await confirm();
  await shows("paused");
  await button("Resume").click();
  await confirm();
  await page.waitForFunction(() => !document.querySelector("h1 .bad"));
});
await check("asks before it purges, and leaves the queue empty", async () => {
  await button("Purge").click();
  await shows("This cannot be undone.");
  await page.screenshot({ path: join(pictures, "purge.png") });
  await confirm();
  await shows("No message here.");
});
await check("creates and deletes a queue", async () => {
  await visit("");
  await button("Create a queue").click();
  await inDialog("[name=name]").fill("made-here.fifo");
  await confirm();
  await page.waitForFunction(() => location.pathname === "/console/queues/made-here.fifo");
  await button("Delete").click();
  await confirm();
  await page.waitForFunction(() => location.pathname === "/console/");
});
await check("shows refusals in the words of the API", async () => {
  await button("Create a queue").click();
  await inDialog("[name=name]").fill("a b");
  await confirm();
  await page.waitForSelector("dialog[open] [role=alert]");
  complaints = complaints.filter((text) => !text.includes("status of 400"));
});
await check("publishes to a topic, and the message arrives", async () => {
  await visit("topics/news");
  await button("Publish").click();
  await inDialog("[name=message]").fill("headline");
  await confirm();
  await visit("queues/orders-dead");
  await shows("headline");
});
await check("tries a message, and says why it reaches one subscription of two", async () => {
  await visit("topics/news");
  const trial = (name) => page.locator(`form:not(dialog form) [name=${name}]`);
  await trial("message").fill("headline");
  await trial("attributes").fill("kind=<script>window.wrong = 1</script>\u202e");
  await button("Try it").click();
  await shows("It would reach 1 of 2 confirmed subscriptions.");
  await shows('attribute `kind` is "<script>window.wrong = 1</script>\\u202e", and the policy wants ["new"]');
  if (await page.evaluate(() => window.wrong)) throw new Error("an attribute ran as a script");
  await page.screenshot({ path: join(pictures, "trial.png"), fullPage: true });
  await trial("attributes").fill("kind");
  await button("Try it").click();
  await page.waitForSelector("[role=alert]");
});
await check("redrives an exhausted delivery after it has asked", async () => {
  await visit("topics/hooks");
  await shows("exhausted");
  await button("Redrive").click();
  await shows("starts again now");
  await confirm();
  await page.waitForFunction(() => !document.querySelector("dialog[open]"));
});
await check("shows a group, and seeks after it has asked", async () => {
  await visit("logs/audit?group=billing");
  for (const text of ["worker-1", "it has no price", "Holders of leases"]) await shows(text);
  if (await page.evaluate(() => window.wrong)) throw new Error("a record ran as a script");
  await button("Seek").click();
  await shows("records may be read again, or skipped");
  await page.screenshot({ path: join(pictures, "seek.png") });
  await inDialog("[name=to]").fill("latest");
  await confirm();
  await page.waitForFunction(() => !document.querySelector("dialog[open]"));
  await page.waitForFunction(() => document.querySelector("[aria-label=Groups] td.number").innerText === "0");
});
await check("requeues a dead letter, and finds records by key", async () => {
  await button("Requeue").click();
  await confirm();
  await shows("No dead letter of this group");
  await page.locator("label ::-p-text(Key)").click();
  await page.keyboard.type("b");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => [...document.querySelectorAll("[aria-label=Records] tbody tr")].length === 2);
  await shows("\\u202etxt.exe");
});
await check("shows a push connection with its credit", async () => {
  const leaves = new AbortController();
  const headers = { authorization: "Bearer 000000000000" };
  const stream = await fetch(`${endpoint}/v1/messages/stream?channel=alerts&credit=2`, { headers, signal: leaves.signal });
  await visit("channels/alerts");
  await page.waitForSelector("[aria-label='Push connections'] tbody tr");
  await page.screenshot({ path: join(pictures, "connection.png") });
  leaves.abort();
  await stream.body.cancel().catch(() => null);
  await page.waitForFunction(() => !document.querySelector("[aria-label='Push connections']"), { timeout: 30000 });
});
await check("pauses, resumes and runs schedules of both APIs", async () => {
  await visit("schedules");
  const row = (name, label) => page.locator(
    `::-p-xpath(//tr[td[1][starts-with(normalize-space(), "${name}")]]//button[not(ancestor::dialog)][normalize-space()="${label}"])`);
  for (const name of ["hourly", "nightly default"]) {
    await row(name, "Pause").click();
    await confirm();
    await row(name, "Resume").click();
    await confirm();
    await row(name, "Pause").wait();
  }
  for (const name of ["hourly", "nightly default"]) {
    await row(name, "Run now").click();
    await confirm();
    await page.waitForFunction(() => !document.querySelector("dialog[open]"));
  }
  await page.locator('::-p-xpath(//button[normalize-space()="week"])').click();
  await page.waitForSelector("svg.line circle");
});
await check("finds rows by name, and keeps that in the address", async () => {
  await visit("?find=rs-dead");
  await shows("1 of 1 rows");
  if (!page.url().includes("find=rs-dead")) throw new Error(page.url());
});
await check("shows all kinds together, and leads to a queue of another account", async () => {
  await visit("");
  for (const name of ["orders", "alerts", "news", "audit"]) await shows(name);
  await page.locator("label ::-p-text(All accounts and regions)").click();
  await shows("eu-west-1");
  await page.waitForSelector("svg.spark polyline");
  await page.screenshot({ path: join(pictures, "trends.png") });
  await page.locator("a ::-p-text(abroad)").click();
  await page.waitForFunction(() => location.hash === "#000000000007/eu-west-1" && location.pathname.endsWith("/abroad"));
  await shows("far away");
});
await check("offers no change where it is read-only, and still tries messages", async () => {
  for (const view of ["topics/hooks", "logs/audit?group=billing", "channels/alerts", "schedules"]) {
    await visit(view, reading);
    const labels = await page.$$eval("main button", (found) => found.map((one) => one.innerText.trim()));
    const changing = labels.filter((one) => /^(Publish|Pause|Resume|Delete|Redrive|Seek|Requeue|Run|Create)/.test(one));
    if (changing.length) throw new Error(`${view}: ${changing}`);
  }
  await visit("topics/news", reading);
  await page.locator("form [name=message]").fill("{}");
  await page.locator("form [name=attributes]").fill("kind=new");
  await button("Try it").click();
  await shows("It would reach 2 of 2 confirmed subscriptions.");
});
await check("shows the newest lines of the audit", async () => {
  await visit("operate");
  await shows("The newest lines of 1 process of this gateway");
  await page.waitForFunction(() => document.querySelector("[aria-label=Audit]")?.innerText.includes("sqs:CreateQueue"));
  await page.screenshot({ path: join(pictures, "audit.png"), fullPage: true });
});
await check("adds a fault while the view refreshes, and removes it", async () => {
  await visit("operate");
  await shows("no inactive slot that keeps WAL");
  await button("Add a fault").click();
  await inDialog("[name=operation]").fill("ListTopics");
  await inDialog("[name=error]").fill("ThrottlingException");
  await page.waitForResponse((answer) => answer.url().endsWith("/_admin/faults"));
  await page.waitForResponse((answer) => answer.url().endsWith("/readyz"));
  await confirm();
  await shows('"operation":"ListTopics"');
  await button("Remove").click();
  await confirm();
  await shows("No request fails on purpose.");
});
await browser.close();
console.log(JSON.stringify(outcomes));
