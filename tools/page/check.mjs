// The live page in headless Chromium: node check.mjs URL [SCREENSHOT.png]
//
// Types a prompt, sees coloured tokens, reads the acceptance chart, walks through the
// steps by keyboard; at phone width and in the dark. Needs the packages puppeteer-core
// and @sparticuz/chromium (or CHROME, the path of a browser).
import assert from "node:assert";
import puppeteer from "puppeteer-core";

const url = process.argv[2];
const options = { headless: true, args: ["--no-sandbox"] };
if (process.env.CHROME) {
  options.executablePath = process.env.CHROME;
} else {
  const chromium = (await import("@sparticuz/chromium")).default;
  options.executablePath = await chromium.executablePath();
  options.args = chromium.args;
}
const browser = await puppeteer.launch(options);
try {
  const page = await browser.newPage();
  const trouble = [];
  const elsewhere = [];
  page.on("pageerror", (e) => trouble.push(e.message));
  page.on("console", (m) => m.type() === "error" && trouble.push(m.text()));
  page.on("request", (r) => r.url().startsWith(url) || r.url().startsWith("data:") || elsewhere.push(r.url()));
  await page.setViewport({ width: 1100, height: 1000 });
  await page.goto(url + "/", { waitUntil: "load" });
  await page.waitForFunction(() => document.querySelectorAll("#strategy option").length > 1, { timeout: 60000 });

  await page.focus("#prompt");
  await page.keyboard.down("Control");
  await page.keyboard.press("KeyA");
  await page.keyboard.up("Control");
  await page.keyboard.type("package main\n\nimport (");
  await page.keyboard.down("Control");
  await page.keyboard.press("Enter");
  await page.keyboard.up("Control");
  const done = () => !document.getElementById("go").disabled && document.querySelectorAll("#out .accepted").length > 0;
  await page.waitForFunction(done, { timeout: 240000 });

  const seen = await page.evaluate(() => ({
    accepted: document.querySelectorAll("#out .accepted").length,
    corrected: document.querySelectorAll("#out .correction").length,
    bars: document.querySelectorAll("#positions .bar").length,
    rates: document.getElementById("positions-text").textContent,
    points: document.querySelector("#lengths polyline").getAttribute("points").split(" ").length,
    steps: +document.getElementById("step").max + 1,
    figures: document.getElementById("figures").textContent,
    server: document.getElementById("server").textContent,
    colours: ["accepted", "correction"].map((c) => getComputedStyle(document.querySelector("." + c)).color),
  }));
  assert.ok(seen.accepted > 5 && seen.corrected > 0, JSON.stringify(seen));
  assert.equal(seen.bars, 3);
  assert.match(seen.rates, /^1: \d+ %/);
  assert.ok(seen.points > 5 && seen.steps > 5);
  assert.match(seen.figures, /plain decoding's own textyes/);
  assert.match(seen.server, /KV pages/);
  assert.notEqual(seen.colours[0], seen.colours[1]);

  // The replay by keyboard.
  await page.focus("#step");
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowRight");
  const step = await page.evaluate(() => [document.getElementById("which").textContent, document.getElementById("detail").textContent, document.querySelectorAll("#out .now").length]);
  assert.equal(step[0], `2 of ${seen.steps}`);
  assert.match(step[1], /drafted/);
  assert.ok(step[2] > 0);

  // Phone width: nothing hangs over. The dark: light text on dark ground.
  await page.setViewport({ width: 360, height: 740 });
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 360), "the page is wider than a phone");
  const ground = () => getComputedStyle(document.body).backgroundColor;
  const light = await page.evaluate(ground);
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
  assert.notEqual(await page.evaluate(ground), light);
  if (process.argv[3]) await page.screenshot({ path: process.argv[3], fullPage: true });

  // What goes wrong is told.
  await page.$eval("#max", (e) => (e.value = "0"));
  await page.$eval("#form", (e) => e.setAttribute("novalidate", ""));
  await page.click("#go");
  await page.waitForFunction(() => !document.getElementById("error").hidden, { timeout: 30000 });
  assert.deepEqual(trouble.filter((t) => !t.includes("400")), []);
  assert.deepEqual(elsewhere, []);
  console.log("the page: ok", JSON.stringify({ accepted: seen.accepted, corrected: seen.corrected, rates: seen.rates, steps: seen.steps }));
} finally {
  await browser.close();
}
