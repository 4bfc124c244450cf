// Visits the console as a person does, and prints what went wrong as JSON: {check: fault}, with an
// empty fault where nothing did. Arguments: the endpoint, the browser, a folder for pictures.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";

const require = createRequire(join(process.env.NODE_PATH, "_"));
const puppeteer = require("puppeteer-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const [endpoint, program, pictures] = process.argv.slice(2);

const VIEWS = {
  queues: "", queue: "queues/orders", charts: "queues/orders?tab=charts", attributes: "queues/orders?tab=attributes",
  subscriptions: "queues/orders?tab=subscriptions", topics: "topics", topic: "topics/news", logs: "logs",
  log: "logs/audit", channels: "channels", schedules: "schedules", operate: "operate", absent: "nowhere",
};
const outcomes = {};
const args = process.getuid() === 0 ? ["--no-sandbox"] : [];
const browser = await puppeteer.launch({ executablePath: program, args });
const page = await browser.newPage();
let complaints = [];
page.on("console", (line) => ["error", "warn"].includes(line.type()) && complaints.push(line.text()));
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

async function visit(view) {
  await page.goto(`${endpoint}/console/${view}`);
  await page.waitForSelector("h1, .empty");
  await page.waitForNetworkIdle({ idleTime: 300, concurrency: 2 });
}

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
await check("shows marks of direction as escapes", () => shows("\\u202etxt.exe"));
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
await check("finds queues by name, and keeps that in the address", async () => {
  await visit("?find=dead");
  await shows("1 of 3 queues");
});
await browser.close();
console.log(JSON.stringify(outcomes));
