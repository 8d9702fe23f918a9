// The dashboard: fetches /v1/model and /v1/monitor every few seconds and draws what they say.
// SPDX-License-Identifier: BSD-3-Clause
"use strict";

const REFRESH = 2000;
const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 220, LEFT = 44, RIGHT = 10, TOP = 12, BOTTOM = 28;
let token = "";

const byId = (id) => document.getElementById(id);
const percent = (value, digits = 1) => (value === null || value === undefined ? "unknown" : (100 * value).toFixed(digits) + " %");
const ranged = (share) => (share ? `${percent(share.estimate)} (interval ${percent(share.low)} to ${percent(share.high)})` : "unknown");
const minute = (text) => String(text).slice(0, 16).replace("T", " ");

function element(name, attributes = {}, text = "") {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  return node;
}

function shape(name, attributes, text = "") {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  return node;
}

async function get(path) {
  const headers = token ? { Authorization: "Bearer " + token } : {};
  const answer = await fetch(path, { headers, cache: "no-store" });
  if (answer.status === 401) {
    byId("token-section").hidden = false;
    throw new Error("a token is needed");
  }
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error);
  return body;
}

function pairs(target, entries) {
  target.replaceChildren(...entries.flatMap(([name, value]) => {
    if (!target.classList.contains("tiles")) return [element("dt", {}, name), element("dd", {}, value)];
    const tile = element("div");
    tile.append(element("dt", {}, name), element("dd", {}, value));
    return [tile];
  }));
}

// points: {at, value, low, high}, all in [0, 1] or null.
function chart(target, points, name) {
  const known = points.filter((point) => point.value !== null);
  if (!known.length) {
    target.replaceChildren(element("p", {}, "No decisions yet."));
    return;
  }
  const highest = Math.max(...known.map((point) => Math.max(point.high ?? 0, point.value)));
  const top = [0.02, 0.1, 0.2, 0.5].find((value) => value >= highest) ?? 1;
  const WIDTH = Math.max(280, target.clientWidth); // one unit is one pixel, so that texts have one size everywhere
  const x = (i) => LEFT + (known.length === 1 ? 0.5 : i / (known.length - 1)) * (WIDTH - LEFT - RIGHT);
  const y = (value) => TOP + (1 - Math.min(value, top) / top) * (HEIGHT - TOP - BOTTOM);
  const last = known[known.length - 1];
  const interval = last.low === null || last.low === undefined ? "" : ", interval " + percent(last.low) + " to " + percent(last.high);
  const svg = shape("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
    "aria-label": `${name}: ${known.length} windows, the latest ${percent(last.value)}${interval}. The table below has all numbers.`,
  });
  for (const share of [0, 0.5, 1]) {
    svg.append(shape("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(share * top), y2: y(share * top) }));
    svg.append(shape("text", { x: LEFT - 6, y: y(share * top) + 4, "text-anchor": "end" }, percent(share * top, 0)));
  }
  if (known.every((point) => point.low !== null && point.low !== undefined)) {
    const upper = known.map((point, i) => `${x(i)},${y(point.high)}`);
    const lower = known.map((point, i) => `${x(i)},${y(point.low)}`).reverse();
    if (known.length > 1) svg.append(shape("polygon", { class: "band", points: [...upper, ...lower].join(" ") }));
    else svg.append(shape("rect", { class: "band", x: x(0) - 6, width: 12, y: y(last.high), height: Math.max(1, y(last.low) - y(last.high)) }));
  }
  svg.append(shape("polyline", { class: "line", points: known.map((point, i) => `${x(i)},${y(point.value)}`).join(" ") }));
  known.forEach((point, i) => {
    if (known.length > 60) return;
    const dot = shape("circle", { class: "dot", cx: x(i), cy: y(point.value), r: 3 });
    dot.append(shape("title", {}, `${minute(point.at)}: ${percent(point.value)}`));
    svg.append(dot);
  });
  svg.append(shape("text", { x: LEFT, y: HEIGHT - 8 }, minute(known[0].at)));
  if (known.length > 1) svg.append(shape("text", { x: WIDTH - RIGHT, y: HEIGHT - 8, "text-anchor": "end" }, minute(last.at)));
  target.replaceChildren(svg);
}

function showMonitor(monitor) {
  const windows = monitor.windows;
  const last = windows.length ? windows[windows.length - 1] : null;
  const total = windows.reduce((sum, item) => sum + item.n, 0);
  pairs(byId("now"), [
    ["OOD share, latest window", last ? percent(last.pi.estimate) : "unknown"],
    ["its interval", last ? percent(last.pi.low) + " to " + percent(last.pi.high) : "unknown"],
    ["Accepted, latest window", last && last.n ? percent(last.accepted / last.n) : "unknown"],
    ["Decisions, latest window", last ? String(last.n) : "0"],
    ["Decisions, all windows", String(total)],
  ]);
  chart(byId("share"), windows.map((w) => ({ at: w.start, value: w.pi.estimate, low: w.pi.low, high: w.pi.high })), "OOD share");
  chart(byId("accepted"), windows.map((w) => ({ at: w.start, value: w.n ? w.accepted / w.n : null })), "Share accepted");
  byId("windows").replaceChildren(...windows.slice().reverse().slice(0, 100).map((w) => {
    const row = element("tr");
    const cells = [minute(w.start), w.n, w.accepted, percent(w.pi.estimate), percent(w.pi.low) + " to " + percent(w.pi.high),
      w.reasons.ambiguous, w.reasons.unfamiliar, w.reasons.both];
    row.append(...cells.map((cell, i) => element(i ? "td" : "th", i ? {} : { scope: "row" }, String(cell))));
    return row;
  }));
  const findings = monitor.findings.map((finding) => {
    const item = element("li", { class: finding.severity });
    item.append(element("span", { class: "severity" }, `${finding.code} ${finding.severity}: `), finding.sentence);
    if (finding.action) item.append(element("div", { class: "note" }, finding.action));
    return item;
  });
  if (monitor.off) findings.unshift(element("li", { class: "warning" }, "The monitor is off: " + monitor.off));
  byId("findings").replaceChildren(...(findings.length ? findings : [element("li", {}, "None.")]));
}

function showModel(model) {
  pairs(byId("model"), [
    ["File", model.file], ["SHA-256", model.sha256], ["Loaded", model.loaded_at], ["poscod", model.poscod],
    ["Rule", model.rule.sentence], ["Threshold", String(model.rule.threshold)], ["Slope", String(model.rule.slope)],
    ["Classes", model.classes.slice(0, 30).join(", ") + (model.classes.length > 30 ? `, ... (${model.classes.length})` : "")],
    ["OOD share at fit", ranged(model.estimates.ood_prior)], ["Class mix", model.class_mix.sentence],
    ["Numbers below", model.estimates.title],
    ...model.estimates.lines.map((line) => [line.name, line.text]),
    ...model.estimates.doubts.map((doubt) => ["Note", doubt]),
  ]);
}

async function refresh() {
  try {
    const [model, monitor] = await Promise.all([get("v1/model"), get("v1/monitor")]);
    showModel(model);
    showMonitor(monitor);
    byId("token-section").hidden = true;
    byId("status").textContent = "Counted up to " + monitor.at.slice(0, 19).replace("T", " ") + " UTC.";
  } catch (error) {
    byId("status").textContent = "No answer from the service: " + error.message + ".";
  }
}

byId("token-button").addEventListener("click", () => { token = byId("token").value; refresh(); });
byId("token").addEventListener("keydown", (event) => { if (event.key === "Enter") byId("token-button").click(); });
refresh();
setInterval(refresh, REFRESH);
