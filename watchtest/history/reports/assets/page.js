"use strict";
// Names and words of tests are hostile: everything goes in as text, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const RED = "FE";
const SHOWN_AT_ONCE = 200;
const STRIP = 60;

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  for (const child of children) node.append(child);
  return node;
}

function draw(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  for (const child of children) node.append(child);
  return node;
}

const titled = (node, text) => { node.append(draw("title", {}, text)); return node; };
const time = (seconds) => new Date(seconds * 1000).toLocaleString();
const took = (seconds) => seconds === null ? "…" : seconds < 1 ? `${Math.round(seconds * 1000)} ms`
  : seconds < 60 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
const look = (state) => ["passed", "failed", "error", "timed_out", "broken", "killed"].includes(state) ? state : "other";
const counted = (counts) => Object.entries(counts).map(([outcome, number]) => `${number} ${outcome}`).join(", ");
const isRedNow = (test) => !test.gone && RED.includes(test.outcomes[test.outcomes.length - 1]);

function redSince(test) {
  let first = test.outcomes.length - 1;
  while (first > 0 && RED.includes(test.outcomes[first - 1])) first -= 1;
  return data.runs[test.runs[first]];
}

// -- now ---------------------------------------------------------------------------------------------

function fact(number, words, style = "") {
  return make("div", { class: "fact" }, make("b", { class: style }, String(number)), make("span", { class: "quiet" }, words));
}

function showNow() {
  at("name").append(data.name);
  at("made").append(`made ${time(data.made_at)}`);
  const last = data.runs[data.runs.length - 1];
  if (!last) { at("now").append("no runs yet"); return; }
  const red = data.tests.filter(isRedNow).length;
  at("now").append(
    fact(last.state, `last run, ${time(last.at)}`, look(last.state)),
    fact(red, red === 1 ? "test is red" : "tests are red", red ? "failed" : "passed"),
    fact(Object.keys(data.flaky).length, "flaky or unstable"),
    fact(data.tests.length, "tests seen"),
    fact(data.runs.length, "runs shown"),
  );
}

// -- the runs ----------------------------------------------------------------------------------------

function showTimeline() {
  const height = 120, wide = 9, runs = data.runs;
  const most = Math.max(0.001, ...runs.map((run) => run.took || 0));
  const svg = draw("svg", { width: Math.max(300, runs.length * wide + 60), height: height + 18, role: "img", "aria-label": "runs" });
  let labelled = -1000;
  runs.forEach((run, index) => {
    const tall = Math.max(4, Math.sqrt((run.took || 0) / most) * height);
    const bar = draw("rect", { class: `run ${look(run.state)}`, x: index * wide, y: height - tall, width: wide - 2, height: tall, rx: 2, role: "button", tabindex: index === runs.length - 1 ? 0 : -1 });
    bar.addEventListener("click", () => showRun(index));
    bar.addEventListener("keydown", (event) => {
      const to = { ArrowLeft: index - 1, ArrowRight: index + 1, Enter: index }[event.key];
      if (to === undefined || !runs[to]) return;
      event.preventDefault();
      showRun(to);
    });
    svg.append(titled(bar, `${run.id} · ${run.state} · ${took(run.took)} · ${counted(run.counts)} · ${time(run.at)}`));
    const day = new Date(run.at * 1000).toLocaleDateString();
    const before = index ? new Date(runs[index - 1].at * 1000).toLocaleDateString() : "";
    if (day !== before && index * wide - labelled > 80) {
      labelled = index * wide;
      svg.append(draw("text", { x: labelled, y: height + 14 }, day));
    }
  });
  at("timeline").append(svg);
  at("timeline").scrollLeft = svg.clientWidth || runs.length * wide;
}

function showRun(index) {
  const run = data.runs[index], panel = at("run");
  document.querySelectorAll(".run").forEach((bar, place) => {
    bar.classList.toggle("chosen", place === index);
    bar.setAttribute("tabindex", place === index ? 0 : -1);
    if (place === index) bar.focus({ preventScroll: true });
  });
  panel.replaceChildren();
  const list = make("dl");
  const rows = [["run", run.id], ["state", run.state + (run.reason ? `: ${run.reason}` : "")], ["when", time(run.at)], ["took", took(run.took)],
    ["tests", counted(run.counts)], ["lane", `${run.lane}, begun by ${run.by}`], ["selection", run.because], ["tree", run.tree || ""], ["branch", run.branch]];
  for (const [name, value] of rows) if (value) list.append(make("dt", {}, name), make("dd", {}, value));
  panel.append(list);
  for (const failure of data.failures.filter((each) => each[0] === index)) panel.append(failureNode(failure, data.tests[failure[1]].id));
  panel.hidden = false;
}

function failureNode([, , signature, place, text], title) {
  const head = make("summary", {}, make("b", {}, title), ` ${place} `, make("span", { class: "quiet" }, signature));
  return make("details", {}, head, make("pre", {}, text));
}

// -- charts ------------------------------------------------------------------------------------------

function showTrend() {
  const days = data.trend;
  if (!days.length) { at("trend").append("no full runs yet"); return; }
  const width = 500, height = 150, base = height - 20;
  const most = Math.max(0.001, ...days.map((day) => day[5]));
  const x = (index) => days.length === 1 ? width / 2 : 4 + index * (width - 8) / (days.length - 1);
  const y = (seconds) => base - seconds / most * (base - 16);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img", "aria-label": "trend" });
  const points = days.map((day, index) => `${x(index)},${y(day[5])}`);
  svg.append(draw("line", { class: "axis", x1: 0, x2: width, y1: base, y2: base }));
  svg.append(draw("polygon", { class: "area", points: `${x(0)},${base} ${points.join(" ")} ${x(days.length - 1)},${base}` }));
  svg.append(draw("polyline", { class: "stroke", points: points.join(" ") }));
  days.forEach((day, index) => {
    const style = day[2] === day[1] ? "passed" : day[2] === 0 ? "failed" : "broken";
    const dot = draw("circle", { class: style, cx: x(index), cy: y(day[5]), r: days.length > 60 ? 3 : 4.5 });
    svg.append(titled(dot, `${day[0]}: ${day[2]} of ${day[1]} runs green, ${day[3]} tests, ${day[4]} red a run, ${took(day[5])}`));
  });
  svg.append(draw("text", { x: 0, y: 10 }, took(most)), draw("text", { x: 0, y: height - 4 }, days[0][0]));
  if (days.length > 1) svg.append(draw("text", { x: width, y: height - 4, "text-anchor": "end" }, days[days.length - 1][0]));
  at("trend").append(make("p", { class: "quiet" }, "how long a run of all tests took"), svg);
  at("trend").append(make("p", { class: "quiet" }, "how many there were, and how many of them were green"), runsByDay(days, x, width));
}

function runsByDay(days, x, width) {
  const height = 70, most = Math.max(...days.map((day) => day[1]));
  const wide = Math.max(2, Math.min(24, width / days.length - 2));
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img", "aria-label": "runs by day" });
  days.forEach((day, index) => {
    const left = Math.min(width - wide, Math.max(0, x(index) - wide / 2)), tall = day[1] / most * height, green = day[2] / most * height;
    const bar = draw("g", {},
      draw("rect", { class: "failed", x: left, y: height - tall, width: wide, height: tall - green }),
      draw("rect", { class: "passed", x: left, y: height - green, width: wide, height: green }));
    svg.append(titled(bar, `${day[0]}: ${day[2]} of ${day[1]} runs green`));
  });
  return svg;
}

function showSlowest() {
  const slow = [...data.tests].sort((one, other) => other.median - one.median).slice(0, 8);
  if (!slow.length || !slow[0].median) { at("slowest").append("nothing to show yet"); return; }
  const width = 500, step = 32;
  const svg = draw("svg", { viewBox: `0 0 ${width} ${slow.length * step}`, width: "100%", role: "img", "aria-label": "slowest tests" });
  slow.forEach((test, index) => {
    const name = test.id.length > 70 ? `…${test.id.slice(-69)}` : test.id;
    svg.append(draw("text", { x: 0, y: index * step + 11 }, name));
    svg.append(titled(draw("rect", { class: "bar", x: 0, y: index * step + 15, rx: 2, height: 10, width: Math.max(2, test.median / slow[0].median * (width - 70)) }), test.id));
    svg.append(draw("text", { x: width, y: index * step + 24, "text-anchor": "end" }, took(test.median / 1000)));
  });
  at("slowest").append(svg);
}

// -- the tests ---------------------------------------------------------------------------------------

function strip(test) {
  const letters = test.outcomes.slice(-STRIP);
  const svg = draw("svg", { class: "strip", width: STRIP * 4, height: 16, role: "img", "aria-label": letters });
  [...letters].forEach((letter, index) => {
    const style = letter === "." ? "passed" : RED.includes(letter) ? "failed" : "other";
    const tall = RED.includes(letter) ? 16 : 8;
    svg.append(draw("rect", { class: style, x: (STRIP - letters.length + index) * 4, y: 16 - tall, width: 3, height: tall }));
  });
  return svg;
}

function detailsOf(test, index) {
  const panel = make("div", { class: "panel" });
  const wide = 6, height = 60, most = Math.max(0.001, ...test.ms), shown = test.ms.slice(-150);
  const svg = draw("svg", { width: shown.length * wide, height: height, role: "img", "aria-label": "durations" });
  const from = test.ms.length - shown.length;
  shown.forEach((ms, place) => {
    const tall = Math.max(2, ms / most * height), letter = test.outcomes[from + place];
    const style = letter === "." ? "passed" : RED.includes(letter) ? "failed" : "other";
    const bar = draw("rect", { class: style, x: place * wide, y: height - tall, width: wide - 2, height: tall });
    const run = data.runs[test.runs[from + place]];
    svg.append(titled(bar, `${run.id} · ${took(ms / 1000)} · ${time(run.at)}`));
  });
  panel.append(make("p", { class: "quiet" }, `durations of ${test.ms.length} runs, ${took(test.median / 1000)} usually, ${took(most / 1000)} at most; red in ${test.red}`), make("div", { class: "chart" }, svg));
  // One entry a way to fail, the latest first: what was said again and again is said once.
  const ways = new Map();
  for (const failure of data.failures) if (failure[1] === index) ways.set(failure[2], [...(ways.get(failure[2]) || []), failure]);
  if (!ways.size && test.red) panel.append(make("p", { class: "quiet" }, "its failures are older than what this page holds"));
  for (const [place, said] of [...ways.values()].entries()) {
    const run = data.runs[said[0][0]];
    const node = failureNode(said[0], `${said.length}× · last in ${run.id}, ${time(run.at)}`);
    node.open = place === 0;
    panel.append(node);
  }
  return panel;
}

function testNode(test, index) {
  const name = make("span", { class: "name" }, test.id);
  if (isRedNow(test)) name.append(make("span", { class: "mark failed" }, `red since ${time(redSince(test).at)}`));
  if (test.gone) name.append(make("span", { class: "mark quiet" }, "gone"));
  if (data.flaky[test.id]) name.append(make("span", { class: "mark broken" }, data.flaky[test.id]));
  const button = make("button", { type: "button", "aria-expanded": "false" }, name, strip(test), make("span", { class: "ms quiet" }, took(test.median / 1000)));
  const node = make("div", { class: "test", role: "listitem" }, button);
  button.addEventListener("click", () => {
    const open = node.querySelector(".panel");
    if (open) open.remove(); else node.append(detailsOf(test, index));
    button.setAttribute("aria-expanded", String(!open));
  });
  return node;
}

function showTests() {
  const wanted = at("filter").value.toLowerCase(), by = at("sort").value;
  const words = new Map();
  if (wanted) for (const [, index, signature, , text] of data.failures) words.set(index, `${words.get(index) || ""} ${signature} ${text}`.slice(0, 20000));
  const found = data.tests.map((test, index) => [test, index]).filter(([test, index]) =>
    (!wanted || test.id.toLowerCase().includes(wanted) || (words.get(index) || "").toLowerCase().includes(wanted))
    && (!at("only-red").checked || isRedNow(test)) && (!at("only-flaky").checked || data.flaky[test.id]));
  const order = by === "id" ? (one, other) => one.id < other.id ? -1 : 1 : (one, other) => other[by] - one[by] || (one.id < other.id ? -1 : 1);
  found.sort(([one], [other]) => (by === "red" ? isRedNow(other) - isRedNow(one) : 0) || order(one, other));
  const list = at("tests");
  list.replaceChildren(...found.slice(0, SHOWN_AT_ONCE).map(([test, index]) => testNode(test, index)));
  at("count").textContent = found.length > SHOWN_AT_ONCE ? `${SHOWN_AT_ONCE} of ${found.length} shown` : `${found.length} ${found.length === 1 ? "test" : "tests"}`;
}

// `#run=ID` shows a run, `#test=TEXT` the tests that match, the first of them open: a link to what is meant.
function follow() {
  const [kind, ...rest] = location.hash.slice(1).split("=");
  const wanted = decodeURIComponent(rest.join("="));
  if (kind === "run") {
    const index = data.runs.findIndex((run) => run.id === wanted);
    if (index >= 0) showRun(index);
  } else if (kind === "test") {
    at("filter").value = wanted;
    showTests();
    at("tests").querySelector("button")?.click();
  }
}

at("filters").addEventListener("input", showTests);
at("filters").addEventListener("submit", (event) => event.preventDefault());
at("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
});
showNow();
showTimeline();
showTrend();
showSlowest();
showTests();
follow();
window.addEventListener("hashchange", follow);
