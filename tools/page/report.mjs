// A report in headless Chromium: node report.mjs REPORT.html [SCREENSHOT.png]
//
// Sorts a table, looks at the plots and the verdicts; at phone width and in the dark;
// with nothing fetched, and no script run but the report's own. Needs the packages
// puppeteer-core and @sparticuz/chromium (or CHROME, the path of a browser).
import assert from "node:assert";
import path from "node:path";
import { pathToFileURL } from "node:url";
import puppeteer from "puppeteer-core";

const url = pathToFileURL(path.resolve(process.argv[2])).href;
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
  page.on("dialog", (d) => { trouble.push("a dialog: " + d.message()); d.dismiss(); });
  page.on("console", (m) => m.type() === "error" && trouble.push(m.text()));
  page.on("request", (r) => r.url() === url || elsewhere.push(r.url()));
  await page.setViewport({ width: 1100, height: 1000 });
  await page.goto(url, { waitUntil: "load" });

  const seen = await page.evaluate(() => ({
    tables: document.querySelectorAll("table").length,
    plots: document.querySelectorAll("svg").length,
    verdicts: document.querySelectorAll(".verdicts li").length,
    scripts: document.querySelectorAll("script").length,
    broken: [...document.querySelectorAll("svg *")].filter((e) => [...e.attributes].some((a) => /NaN|Infinity/.test(a.value))).length,
    first: document.querySelector(".verdicts").getBoundingClientRect().top < document.querySelector("svg, table").getBoundingClientRect().top,
    coloured: getComputedStyle(document.querySelector("svg .dot, svg .bar")).fill,
  }));
  assert.ok(seen.tables > 1 && seen.plots > 0 && seen.verdicts > 0, JSON.stringify(seen));
  assert.equal(seen.scripts, 1);
  assert.equal(seen.broken, 0, "a plot has a place that is no number");
  assert.ok(seen.first, "verdicts come first");
  assert.notEqual(seen.coloured, "rgb(0, 0, 0)", "the style sheet is not let in");

  // Each table sorts by each column, up and down.
  const unsorted = await page.evaluate(() => {
    const wrong = [];
    for (const table of document.querySelectorAll("table")) {
      [...table.tHead.rows[0].cells].forEach((head, column) => {
        for (const sign of [1, -1]) {
          head.querySelector("button").click();
          const cells = [...table.tBodies[0].rows].map((r) => r.cells[column]);
          if (cells.some((c) => c.dataset.v === undefined)) continue;
          const values = cells.map((c) => Number(c.dataset.v));
          if (values.some((v, i) => i > 0 && sign * (v - values[i - 1]) < 0)) wrong.push(head.textContent);
        }
      });
    }
    return wrong;
  });
  assert.deepEqual(unsorted, []);

  // Phone width: nothing hangs over. The dark: light text on dark ground.
  await page.setViewport({ width: 360, height: 740 });
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 360), "the page is wider than a phone");
  const ground = () => getComputedStyle(document.body).backgroundColor;
  const light = await page.evaluate(ground);
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
  assert.notEqual(await page.evaluate(ground), light);
  if (process.argv[3]) await page.screenshot({ path: process.argv[3], fullPage: true });

  assert.deepEqual(trouble, []);
  assert.deepEqual(elsewhere, []);
  console.log("the report: ok", JSON.stringify({ tables: seen.tables, plots: seen.plots, verdicts: seen.verdicts }));
} finally {
  await browser.close();
}
