"use strict";
// Everything that comes from data goes into the page as text (textContent), never as markup.
const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const chosen = { system: 1, judgment: 0, order: "gain", filter: "all", search: "", query: null, all: false };
const FILTERS = {
  all: "All", helped: "▲ Helped", hurt: "▼ Hurt", tied: "= Tied",
  zero: "○ Zero in both", outside_pool: "○ outside the pool", in_pool: "○ in the pool",
};
const GLYPHS = { helped: "▲", hurt: "▼", tied: "=", outside_pool: "○", in_pool: "○" };
const MARKS = { gold: "★ gold", pool: "◆ pooled only", out: "⊘ excluded" };
const number = new Intl.NumberFormat("en");

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") made.className = value;
    else if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

const fixed = (value) => value.toFixed(3).replace("-", "−");
const signed = (value) => (value > 0 ? "+" : "") + fixed(value);
const names = () => [DATA.systems[0].name, DATA.systems[chosen.system].name];
const values = (query) => query.values[chosen.judgment];
const classOf = (query) => DATA.classes[chosen.judgment][chosen.system - 1][query.id];
const difference = (query) => values(query)[chosen.system] - values(query)[0];
const judged = () => DATA.queries.filter((query) => values(query) !== null);

function fits(query, filter) {
  const found = classOf(query);
  return filter === "all" || found === filter || (filter === "zero" && (found === "outside_pool" || found === "in_pool"));
}

function listed() {
  const words = chosen.search.toLowerCase().split(/\s+/).filter(Boolean);
  const hay = (query) => `${query.id} ${query.text ?? ""}`.toLowerCase();
  const found = judged().filter((query) => fits(query, chosen.filter) && words.every((word) => hay(query).includes(word)));
  const keys = { gain: (q) => -difference(q), loss: difference, size: (q) => -Math.abs(difference(q)), given: () => 0 };
  const key = keys[chosen.order];
  return found.sort((a, b) => key(a) - key(b));
}

function drawFilters() {
  const all = judged();
  byId("filters").replaceChildren(
    element("legend", { class: "visually-hidden" }, "Queries to list"),
    ...Object.entries(FILTERS).map(([filter, words]) => {
      const input = element("input", { type: "radio", name: "filter", value: filter, checked: filter === chosen.filter });
      const count = all.filter((query) => fits(query, filter)).length;
      return element("label", { class: "filter" }, input, element("span", {}, `${words} ${number.format(count)}`));
    }),
  );
}

function bar(change, widest) {
  const box = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  box.setAttribute("viewBox", "0 0 200 10");
  box.setAttribute("preserveAspectRatio", "none");
  const part = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const length = (Math.abs(change) / widest) * 100;
  part.setAttribute("x", change < 0 ? 100 - length : 100);
  part.setAttribute("width", length);
  part.setAttribute("height", 10);
  part.setAttribute("class", change < 0 ? "hurt" : "helped");
  box.append(part);
  return element("span", { class: "bar", "aria-hidden": "true" }, box);
}

function drawList() {
  const found = listed();
  byId("count").textContent = `${number.format(found.length)} of ${number.format(judged().length)} queries`;
  const widest = Math.max(...judged().map((query) => Math.abs(difference(query)))) || 1;
  byId("list").replaceChildren(...found.map((query) => {
    const kind = classOf(query);
    const tone = kind === "helped" || kind === "hurt" ? kind : "same";
    const [before, after] = [values(query)[0], values(query)[chosen.system]];
    const change = element("span", { class: `change ${tone}` }, `${GLYPHS[kind]} ${signed(difference(query))}`, bar(difference(query), widest));
    const small = `${query.id} · ${fixed(before)} → ${fixed(after)}`;
    const button = element("button", { type: "button" }, change, element("span", { class: "text" }, query.text ?? query.id),
      element("span", { class: "small" }, small));
    button.dataset.query = query.id;
    button.setAttribute("aria-current", query.id === chosen.query);
    button.tabIndex = query.id === chosen.query ? 0 : -1;
    return element("li", {}, button);
  }));
  const buttons = [...byId("list").querySelectorAll("button")];
  if (buttons.length && !buttons.some((button) => button.tabIndex === 0)) buttons[0].tabIndex = 0;
  if (!buttons.length) byId("list").append(element("li", { class: "empty" }, "No query fits the filter and the search."));
}

// What the judgments say of each document of one query.
function marksOf(query) {
  const excluded = new Set(query.excluded);
  const relevant = new Map(query.relevant.map(([document, grades]) => [document, grades]));
  const gold = DATA.judgments.indexOf("gold");
  return (document) => {
    const grades = relevant.get(document);
    const isGold = Boolean(grades) && gold >= 0 && grades[gold] > 0;
    const found = [];
    if (isGold) found.push("gold");
    else if (grades) found.push("pool");
    if (excluded.has(document)) found.push("out");
    return found;
  };
}

const mark = (kind) => element("span", { class: `mark ${kind}` }, MARKS[kind]);

function documentBox(document, marks, rank, other) {
  const [id, text, length] = DATA.documents[document];
  const head = element("span", { class: "head" },
    rank === null ? null : element("span", { class: "rank" }, String(rank)),
    ...marks.map(mark), element("span", { class: "id" }, id), element("span", { class: "other" }, other));
  const box = element("li", { class: ["doc", ...marks].join(" ") });
  if (text === null) {
    box.append(element("div", { class: "bare" }, head));
    return box;
  }
  const full = element("p", { class: "full" }, text);
  const shown = [...text].length;
  if (shown < length) full.append(element("span", { class: "cut" }, ` … cut: the first ${number.format(shown)} of ${number.format(length)} characters`));
  box.append(element("details", {}, element("summary", {}, head, element("span", { class: "snippet" }, text || "(empty text)")), full));
  return box;
}

// Ranks of a list's documents; an excluded document has none, and those below it count as if it were not there.
function ranksOf(query, system) {
  const excluded = new Set(query.excluded);
  let rank = 0;
  return new Map(query.lists[system].map((document) => [document, excluded.has(document) ? null : ++rank]));
}

function side(query, system, against, marks) {
  const [own, other] = [ranksOf(query, system), ranksOf(query, against)];
  const otherName = DATA.systems[against].name;
  const items = [];
  for (const [document, rank] of own) {
    if (rank !== null && rank > DATA.top && !chosen.all) break;
    const there = other.has(document) ? other.get(document) : undefined;
    const words = rank === null ? "not ranked" : `${otherName}: ${there ?? "–"}`;
    items.push(documentBox(document, marks(document), rank === null ? "–" : rank, words));
  }
  const found = (depth) => query.relevant.filter(([, grades, ranks]) => grades[chosen.judgment] > 0 && ranks[system] !== null && ranks[system] <= depth).length;
  const total = query.relevant.filter(([, grades]) => grades[chosen.judgment] > 0).length;
  const reach = Math.min(DATA.systems[system].depth, DATA.pool);
  const facts = `${DATA.measure} ${fixed(values(query)[system])} · relevant in the top ${DATA.top}: ${found(DATA.top)} of ${total}, in the top ${reach}: ${found(reach)}`;
  return element("section", { class: "side", "aria-label": DATA.systems[system].name },
    element("h3", {}, DATA.systems[system].name), element("p", { class: "note" }, facts),
    items.length ? element("ol", {}, ...items) : element("p", { class: "empty" }, "No answer."));
}

function missed(query, marks) {
  const pair = [0, chosen.system];
  const place = (ranks) => pair.map((system) => {
    const rank = ranks[system];
    return `${DATA.systems[system].name}: ${rank === null ? `not in the first ${number.format(DATA.systems[system].depth)}` : `rank ${number.format(rank)}`}`;
  }).join(" · ");
  const best = (ranks) => Math.min(...pair.map((system) => ranks[system] ?? Infinity));
  const found = query.relevant.filter(([, grades, ranks]) => grades[chosen.judgment] > 0 && pair.some((system) => (ranks[system] ?? Infinity) > DATA.top));
  found.sort((a, b) => best(b[2]) - best(a[2]) || 0);
  const word = DATA.judgments[chosen.judgment] === "gold" ? "gold" : "relevant";
  const title = `Missed ${word} documents (${number.format(found.length)}): not in the top ${DATA.top} of at least one of the two`;
  return element("section", { class: "lists missed" }, element("h3", {}, title),
    found.length ? element("ol", {}, ...found.map(([document, , ranks]) => documentBox(document, marks(document), null, place(ranks))))
      : element("p", { class: "note" }, "None."));
}

function excludedList(query, marks) {
  if (!query.excluded.length) return null;
  return element("section", { class: "lists excluded" },
    element("h3", {}, `Excluded for this query (${number.format(query.excluded.length)}): may not be returned`),
    element("ol", {}, ...query.excluded.map((document) => documentBox(document, marks(document), null, ""))));
}

function legend(query) {
  const longest = Math.max(...query.lists.map((list) => list.length));
  const more = element("button", { type: "button", "aria-pressed": String(chosen.all) }, chosen.all ? `Show the top ${DATA.top}` : `Show the top ${Math.min(longest, DATA.shown)}`);
  more.addEventListener("click", () => { chosen.all = !chosen.all; drawDetail(); byId("detail").querySelector("[aria-pressed]").focus(); });
  const open = element("button", { type: "button" }, "Open all texts");
  open.addEventListener("click", () => byId("detail").querySelectorAll("details").forEach((one) => { one.open = true; }));
  const kinds = ["gold", ...(DATA.judgments.includes("pooled") ? ["pool"] : []), ...(query.excluded.length ? ["out"] : [])];
  return element("div", { class: "legend" }, ...kinds.map(mark),
    element("span", {}, `name: rank there; – is not in its first ${number.format(Math.min(longest, DATA.shown))}`), longest > DATA.top ? more : null, DATA.texts ? open : null);
}

function queryText(query) {
  const text = query.text ?? "(the text of the query is not known: compare with -t TASK)";
  if (text.length <= DATA.long) return element("p", { class: "words" }, text);
  const start = element("span", { class: "snippet" }, text);
  const words = element("span", { class: "more" }, "whole query");
  return element("details", { class: "long" }, element("summary", {}, start, words), element("p", { class: "words" }, text));
}

function drawDetail() {
  const query = judged().find((one) => one.id === chosen.query);
  document.body.classList.toggle("reading", Boolean(query));
  if (!query) {
    byId("detail").replaceChildren(element("p", { class: "empty" }, "Choose a query."));
    return;
  }
  const marks = marksOf(query);
  const back = element("button", { type: "button", class: "back" }, "← All queries");
  back.addEventListener("click", () => go(null));
  const kind = classOf(query);
  const kindWords = { helped: "helped", hurt: "hurt", tied: "tied", outside_pool: "zero in both: nothing relevant in the pool", in_pool: "zero in both: relevant documents in the pool, but too far down" };
  const [before, after] = names();
  const change = `${GLYPHS[kind]} ${kindWords[kind]} · ${DATA.measure} ${before} ${fixed(values(query)[0])} → ${after} ${fixed(values(query)[chosen.system])} (${signed(difference(query))})`;
  byId("detail").replaceChildren(
    back,
    element("div", { class: "query" }, element("h2", {}, query.id),
      element("p", { class: "values" }, change), queryText(query)),
    legend(query),
    element("div", { class: "sides" }, side(query, 0, chosen.system, marks), side(query, chosen.system, 0, marks)),
    missed(query, marks),
    ...[excludedList(query, marks)].filter(Boolean),
  );
}

function choose(id, focus) {
  chosen.query = id;
  byId("list").querySelectorAll("button").forEach((button) => {
    const here = button.dataset.query === id;
    button.setAttribute("aria-current", here);
    button.tabIndex = here ? 0 : -1;
    if (here && focus) button.focus();
    if (here && !focus) button.scrollIntoView({ block: "nearest" });
  });
  drawDetail();
}

// The address names the query, so that it can be kept and sent, and so that "back" leads to the list.
function go(id, replace = false) {
  const address = id === null ? location.pathname + location.search : `#q=${encodeURIComponent(id)}`;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  choose(id, replace);
  if (!replace) window.scrollTo(0, 0);
}

function fromAddress() {
  const found = /^#q=(.*)$/.exec(location.hash);
  let id = null;
  try { id = found && decodeURIComponent(found[1]); } catch { id = null; }
  choose(judged().some((query) => query.id === id) ? id : null, false);
}

function redraw() { drawFilters(); drawList(); drawDetail(); }

function fill(select, words, value) {
  byId(select).append(...words.map((word, index) => element("option", { value: String(index + value) }, word)));
  byId(`${select}-choice`).hidden = words.length < 2;
  byId(select).addEventListener("change", () => { chosen[select] = Number(byId(select).value); redraw(); });
}

fill("system", DATA.systems.slice(1).map((system) => system.name), 1);
fill("judgment", DATA.judgments, 0);
byId("order").addEventListener("change", () => { chosen.order = byId("order").value; drawList(); });
byId("search").addEventListener("input", () => { chosen.search = byId("search").value; drawList(); });
byId("controls").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("change", (event) => { chosen.filter = event.target.value; drawList(); });
byId("list").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) go(button.dataset.query);
});
byId("list").addEventListener("keydown", (event) => {
  const buttons = [...byId("list").querySelectorAll("button")];
  const at = buttons.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
  if (to === undefined || !buttons[to]) return;
  event.preventDefault();
  go(buttons[to].dataset.query, true);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|SELECT)$/.test(document.activeElement.tagName)) { event.preventDefault(); byId("search").focus(); }
});
window.addEventListener("popstate", fromAddress);
drawFilters();
drawList();
fromAddress();
