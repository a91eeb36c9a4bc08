"use strict";
// Names and messages of tests are untrusted: everything is inserted as text, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const RED = "FE";
const SHOWN_AT_ONCE = 200;
const STRIP = 60;

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svgNode = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const withTitle = (node, text) => { node.append(svgNode("title", {}, text)); return node; };
const formatTime = (seconds) => new Date(seconds * 1000).toLocaleString();
const formatDuration = (seconds) => seconds === null ? "…" : seconds < 1 ? `${Math.round(seconds * 1000)} ms`
  : seconds < 60 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
const plural = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const styleOf = (state) => ["passed", "failed", "error", "timed_out", "broken", "killed"].includes(state) ? state : "other";
const countsText = (counts) => Object.entries(counts).map(([outcome, number]) => `${number} ${outcome}`).join(", ");
const isRed = (test) => !test.gone && RED.includes(test.outcomes[test.outcomes.length - 1]);

function redSince(test) {
  let first = test.outcomes.length - 1;
  while (first > 0 && RED.includes(test.outcomes[first - 1])) first -= 1;
  return data.runs[test.runs[first]];
}

// -- summary -----------------------------------------------------------------------------------------

function fact(number, words, style = "") {
  return html("div", { class: "fact" }, html("b", { class: style }, String(number)), html("span", { class: "quiet" }, words));
}

function showSummary() {
  byId("name").append(data.name);
  byId("made").append(`made ${formatTime(data.made_at)}`);
  const last = data.runs[data.runs.length - 1];
  if (!last) { byId("now").append("no runs yet"); return; }
  const red = data.tests.filter(isRed).length;
  byId("now").append(
    fact(last.state, `last run, ${formatTime(last.at)}`, styleOf(last.state)),
    fact(red, red === 1 ? "test is red" : "tests are red", red ? "failed" : "passed"),
    fact(Object.keys(data.flaky).length, "flaky or unstable"),
    fact(data.tests.length, "tests seen"),
    fact(data.runs.length, "runs shown"),
  );
}

// -- runs --------------------------------------------------------------------------------------------

function showTimeline() {
  const height = 120, wide = 9, runs = data.runs;
  const most = Math.max(0.001, ...runs.map((run) => run.took || 0));
  const svg = svgNode("svg", { width: Math.max(300, runs.length * wide + 60), height: height + 18, role: "img", "aria-label": "runs" });
  let labelled = -1000;
  runs.forEach((run, index) => {
    const tall = Math.max(4, Math.sqrt((run.took || 0) / most) * height);
    const bar = svgNode("rect", { class: `run ${styleOf(run.state)}`, x: index * wide, y: height - tall, width: wide - 2, height: tall, rx: 2, role: "button", tabindex: index === runs.length - 1 ? 0 : -1 });
    bar.addEventListener("click", () => showRun(index));
    bar.addEventListener("keydown", (event) => {
      const to = { ArrowLeft: index - 1, ArrowRight: index + 1, Enter: index }[event.key];
      if (to === undefined || !runs[to]) return;
      event.preventDefault();
      showRun(to);
    });
    svg.append(withTitle(bar, `${run.id} · ${run.state} · ${formatDuration(run.took)} · ${countsText(run.counts)} · ${formatTime(run.at)}`));
    const day = new Date(run.at * 1000).toLocaleDateString();
    const before = index ? new Date(runs[index - 1].at * 1000).toLocaleDateString() : "";
    if (day !== before && index * wide - labelled > 80) {
      labelled = index * wide;
      svg.append(svgNode("text", { x: labelled, y: height + 14 }, day));
    }
  });
  byId("timeline").append(svg);
  byId("timeline").scrollLeft = svg.clientWidth || runs.length * wide;
}

function showRun(index) {
  const run = data.runs[index], panel = byId("run");
  document.querySelectorAll(".run").forEach((bar, place) => {
    bar.classList.toggle("chosen", place === index);
    bar.setAttribute("tabindex", place === index ? 0 : -1);
    if (place === index) bar.focus({ preventScroll: true });
  });
  panel.replaceChildren();
  const list = html("dl");
  const rows = [["run", run.id], ["state", run.state + (run.reason ? `: ${run.reason}` : "")], ["when", formatTime(run.at)], ["took", formatDuration(run.took)],
    ["tests", countsText(run.counts)], ["lane", `${run.lane}, triggered by ${run.by}`], ["selection", run.because], ["tree", run.tree || ""], ["branch", run.branch]];
  for (const [name, value] of rows) if (value) list.append(html("dt", {}, name), html("dd", {}, value));
  panel.append(list);
  for (const failure of data.failures.filter((each) => each[0] === index)) panel.append(failureNode(failure, data.tests[failure[1]].id));
  panel.hidden = false;
}

function failureNode([, , signature, place, text], title) {
  const head = html("summary", {}, html("b", {}, title), ` ${place} `, html("span", { class: "quiet" }, signature));
  return html("details", {}, head, html("pre", {}, text));
}

// -- charts ------------------------------------------------------------------------------------------

function showTrend() {
  const days = data.trend;
  if (!days.length) { byId("trend").append("no full runs yet"); return; }
  const width = 500, height = 150, base = height - 20;
  const most = Math.max(0.001, ...days.map((day) => day[5]));
  const x = (index) => days.length === 1 ? width / 2 : 4 + index * (width - 8) / (days.length - 1);
  const y = (seconds) => base - seconds / most * (base - 16);
  const svg = svgNode("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img", "aria-label": "trend" });
  const points = days.map((day, index) => `${x(index)},${y(day[5])}`);
  svg.append(svgNode("line", { class: "axis", x1: 0, x2: width, y1: base, y2: base }));
  svg.append(svgNode("polygon", { class: "area", points: `${x(0)},${base} ${points.join(" ")} ${x(days.length - 1)},${base}` }));
  svg.append(svgNode("polyline", { class: "stroke", points: points.join(" ") }));
  days.forEach((day, index) => {
    const style = day[2] === day[1] ? "passed" : day[2] === 0 ? "failed" : "broken";
    const dot = svgNode("circle", { class: style, cx: x(index), cy: y(day[5]), r: days.length > 60 ? 3 : 4.5 });
    svg.append(withTitle(dot, `${day[0]}: ${day[2]} of ${day[1]} runs green, ${day[3]} tests, ${day[4]} red per run, ${formatDuration(day[5])}`));
  });
  svg.append(svgNode("text", { x: 0, y: 10 }, formatDuration(most)), svgNode("text", { x: 0, y: height - 4 }, days[0][0]));
  if (days.length > 1) svg.append(svgNode("text", { x: width, y: height - 4, "text-anchor": "end" }, days[days.length - 1][0]));
  byId("trend").append(html("p", { class: "quiet" }, "duration of a full run"), svg);
  byId("trend").append(html("p", { class: "quiet" }, "number of full runs, and how many were green"), runsByDay(days, x, width));
}

function runsByDay(days, x, width) {
  const height = 70, most = Math.max(...days.map((day) => day[1]));
  const wide = Math.max(2, Math.min(24, width / days.length - 2));
  const svg = svgNode("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img", "aria-label": "runs by day" });
  days.forEach((day, index) => {
    const left = Math.min(width - wide, Math.max(0, x(index) - wide / 2)), tall = day[1] / most * height, green = day[2] / most * height;
    const bar = svgNode("g", {},
      svgNode("rect", { class: "failed", x: left, y: height - tall, width: wide, height: tall - green }),
      svgNode("rect", { class: "passed", x: left, y: height - green, width: wide, height: green }));
    svg.append(withTitle(bar, `${day[0]}: ${day[2]} of ${day[1]} runs green`));
  });
  return svg;
}

function showSlowest() {
  const slow = [...data.tests].sort((one, other) => other.median - one.median).slice(0, 8);
  if (!slow.length || !slow[0].median) { byId("slowest").append("nothing to show yet"); return; }
  const width = 500, step = 32;
  const svg = svgNode("svg", { viewBox: `0 0 ${width} ${slow.length * step}`, width: "100%", role: "img", "aria-label": "slowest tests" });
  slow.forEach((test, index) => {
    const name = test.id.length > 70 ? `…${test.id.slice(-69)}` : test.id;
    svg.append(svgNode("text", { x: 0, y: index * step + 11 }, name));
    svg.append(withTitle(svgNode("rect", { class: "bar", x: 0, y: index * step + 15, rx: 2, height: 10, width: Math.max(2, test.median / slow[0].median * (width - 70)) }), test.id));
    svg.append(svgNode("text", { x: width, y: index * step + 24, "text-anchor": "end" }, formatDuration(test.median / 1000)));
  });
  byId("slowest").append(svg);
}

// -- tests -------------------------------------------------------------------------------------------

function strip(test) {
  const letters = test.outcomes.slice(-STRIP);
  const svg = svgNode("svg", { class: "strip", width: STRIP * 4, height: 16, role: "img", "aria-label": letters });
  [...letters].forEach((letter, index) => {
    const style = letter === "." ? "passed" : RED.includes(letter) ? "failed" : "other";
    const tall = RED.includes(letter) ? 16 : 8;
    svg.append(svgNode("rect", { class: style, x: (STRIP - letters.length + index) * 4, y: 16 - tall, width: 3, height: tall }));
  });
  return svg;
}

function testDetails(test, index) {
  const panel = html("div", { class: "panel" });
  const wide = 6, height = 60, most = Math.max(0.001, ...test.ms), shown = test.ms.slice(-150);
  const svg = svgNode("svg", { width: shown.length * wide, height: height, role: "img", "aria-label": "durations" });
  const from = test.ms.length - shown.length;
  shown.forEach((ms, place) => {
    const tall = Math.max(2, ms / most * height), letter = test.outcomes[from + place];
    const style = letter === "." ? "passed" : RED.includes(letter) ? "failed" : "other";
    const bar = svgNode("rect", { class: style, x: place * wide, y: height - tall, width: wide - 2, height: tall });
    const run = data.runs[test.runs[from + place]];
    svg.append(withTitle(bar, `${run.id} · ${formatDuration(ms / 1000)} · ${formatTime(run.at)}`));
  });
  panel.append(html("p", { class: "quiet" }, `durations in ${plural(test.ms.length, "run")}, ${formatDuration(test.median / 1000)} usually, ${formatDuration(most / 1000)} at most; red in ${plural(test.red, "run")}`), html("div", { class: "chart" }, svg));
  // One entry per signature, the latest first.
  const bySignature = new Map();
  for (const failure of data.failures) if (failure[1] === index) bySignature.set(failure[2], [...(bySignature.get(failure[2]) || []), failure]);
  if (!bySignature.size && test.red) panel.append(html("p", { class: "quiet" }, "its failures are older than those on this page"));
  for (const [position, failures] of [...bySignature.values()].entries()) {
    const run = data.runs[failures[0][0]];
    const node = failureNode(failures[0], `${failures.length}× · last in ${run.id}, ${formatTime(run.at)}`);
    node.open = position === 0;
    panel.append(node);
  }
  return panel;
}

function testNode(test, index) {
  const name = html("span", { class: "name" }, test.id);
  if (isRed(test)) name.append(html("span", { class: "mark failed" }, `red since ${formatTime(redSince(test).at)}`));
  if (test.gone) name.append(html("span", { class: "mark quiet" }, "gone"));
  if (data.flaky[test.id]) name.append(html("span", { class: "mark broken" }, data.flaky[test.id]));
  const button = html("button", { type: "button", "aria-expanded": "false" }, name, strip(test), html("span", { class: "ms quiet" }, formatDuration(test.median / 1000)));
  const node = html("div", { class: "test", role: "listitem" }, button);
  button.addEventListener("click", () => {
    const open = node.querySelector(".panel");
    if (open) open.remove(); else node.append(testDetails(test, index));
    button.setAttribute("aria-expanded", String(!open));
  });
  return node;
}

function showTests() {
  const wanted = byId("filter").value.toLowerCase(), by = byId("sort").value;
  const words = new Map();
  if (wanted) for (const [, index, signature, , text] of data.failures) words.set(index, `${words.get(index) || ""} ${signature} ${text}`.slice(0, 20000));
  const found = data.tests.map((test, index) => [test, index]).filter(([test, index]) =>
    (!wanted || test.id.toLowerCase().includes(wanted) || (words.get(index) || "").toLowerCase().includes(wanted))
    && (!byId("only-red").checked || isRed(test)) && (!byId("only-flaky").checked || data.flaky[test.id]));
  const order = by === "id" ? (one, other) => one.id < other.id ? -1 : 1 : (one, other) => other[by] - one[by] || (one.id < other.id ? -1 : 1);
  found.sort(([one], [other]) => (by === "red" ? isRed(other) - isRed(one) : 0) || order(one, other));
  const list = byId("tests");
  list.replaceChildren(...found.slice(0, SHOWN_AT_ONCE).map(([test, index]) => testNode(test, index)));
  byId("count").textContent = found.length > SHOWN_AT_ONCE ? `${SHOWN_AT_ONCE} of ${found.length} shown` : plural(found.length, "test");
}

// Links: `#run=ID` shows a run, `#test=TEXT` the matching tests with the first one open.
function followLink() {
  const [kind, ...rest] = location.hash.slice(1).split("=");
  const wanted = decodeURIComponent(rest.join("="));
  if (kind === "run") {
    const index = data.runs.findIndex((run) => run.id === wanted);
    if (index >= 0) showRun(index);
  } else if (kind === "test") {
    byId("filter").value = wanted;
    showTests();
    byId("tests").querySelector("button")?.click();
  }
}

byId("filters").addEventListener("input", showTests);
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
});
showSummary();
showTimeline();
showTrend();
showSlowest();
showTests();
followLink();
window.addEventListener("hashchange", followLink);
