"use strict";
(() => {
const $ = id => document.getElementById(id);
const sizes = document.currentScript.dataset; // of the program: its pieces, and its bytes when it is unpacked

// make is an element with properties, attributes and children.
function make(tag, props, ...kids) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props || {})) {
    if (k === "class") e.className = v;
    else if (k === "on") e.addEventListener("click", v);
    else if (v !== undefined && v !== false) e.setAttribute(k, v);
  }
  e.append(...kids.filter(k => k !== "" && k !== undefined));
  return e;
}

// The program comes in pieces, each a script that calls btrlabWasm. What is loading is said in four parts.
const pieces = [], parts = ["download", "decompress", "compile", "start"];
function loading(part, share) {
  const i = parts.indexOf(part), text = `${i + 1} of 4, ${part}`, bar = $("load");
  if (share === undefined) bar.removeAttribute("value"); else bar.value = share;
  if ($("waiting-stage").textContent === text) return;
  $("waiting-stage").textContent = text;
  $("status").textContent = "Loading the program: " + text;
}
function download() {
  loading("download", 0);
  const names = ["catalog.js"];
  for (let i = 0; i < sizes.pieces; i++) names.push(`btrlab.wasm.${String(i).padStart(2, "0")}.js`);
  for (const name of names) document.head.append(Object.assign(document.createElement("script"), { src: name, async: false, onerror: () => failed(name + " is missing: it belongs beside this page") }));
}
globalThis.btrlabWasm = piece => {
  pieces.push(piece);
  loading("download", pieces.length / sizes.pieces);
  worker.postMessage({ piece, of: Number(sizes.pieces) });
};

// The worker. A question has a number, and its answer the same one; until then it may tell how far it is.
const questions = new Map();
let worker, number = 0, ready, isReady;
function start() {
  ready = new Promise(done => { isReady = done; });
  const source = URL.createObjectURL(new Blob([$("worker-source").textContent], { type: "text/javascript" }));
  worker = new Worker(source);
  worker.onerror = e => failed(e.message || "the worker has failed");
  worker.onmessage = e => {
    const m = e.data;
    if (m.ready) {
      URL.revokeObjectURL(source);
      isReady();
      if (hasProgram) loaded("ready again");
      return;
    }
    if (m.catalog) { tellCatalog(JSON.parse(m.catalog)); return; }
    if (m.unpacked) { if (pieces.length == sizes.pieces) loading("decompress", m.unpacked / sizes.bytes); return; }
    if (m.stage) { loading(m.stage); return; }
    if (m.failed) { failed(m.failed); return; }
    const q = questions.get(m.id);
    if (!q) return;
    if (m.text !== undefined) { q.tell && q.tell(m); return; }
    questions.delete(m.id);
    if (m.error) q.reject(new Error(m.error)); else q.resolve(JSON.parse(m.answer));
  };
  for (const piece of pieces) worker.postMessage({ piece, of: Number(sizes.pieces) });
}
function loaded(text) {
  $("load").hidden = true;
  $("status").textContent = text;
}
function failed(text) {
  loaded(text);
  if (!hasProgram) $("waiting").replaceChildren(make("p", {}, "The program could not be loaded: " + text));
  for (const q of questions.values()) q.reject(new Error(text));
  questions.clear();
}
async function ask(what, args, tell) {
  await ready;
  return new Promise((resolve, reject) => {
    const id = ++number;
    questions.set(id, { resolve, reject, tell });
    worker.postMessage({ id, what, args: JSON.stringify(args || {}) });
  });
}
// A search that does not hear the request to stop within two seconds ends with its worker.
function stop() {
  const before = worker;
  worker.postMessage({ id: 0, what: "stop", args: "{}" });
  const searches = [...questions.keys()];
  setTimeout(() => {
    if (worker !== before || !searches.some(id => questions.has(id))) return;
    before.terminate();
    failed("stopped; the worker was ended and starts again");
    start(); // the game is gone; the next page of one opens it anew
  }, 2000);
}

// The address: #page?name=value. A plus is a switch of a policy, so it is kept apart from a space.
function here() {
  const [page, query] = location.hash.slice(1).split("?");
  const known = document.getElementById("page-" + page);
  return { page: known ? page : "levels", unknown: known ? "" : page, args: new URLSearchParams(query || "") };
}
function address(page, args) {
  const p = new URLSearchParams();
  for (const [k, v] of Object.entries(args)) if (v !== "" && v !== undefined && v !== 0) p.set(k, v);
  const q = p.toString().replace(/%3A/g, ":").replace(/%2C/g, ",").replace(/%21/g, "!");
  return "#" + page + (q ? "?" + q : "");
}
let shown;
function note(page, args) {
  shown = address(page, args);
  history.replaceState(null, "", shown);
}

// The catalog comes before the program, and is what Explore, Museum and Policies show; the program is what runs.
let catalog, hasProgram = false, tellCatalog;
const catalogCame = new Promise(done => { tellCatalog = done; });
globalThis.btrlabCatalog = packed => worker.postMessage({ catalog: packed });
const policySelects = ["step-policy", "explore-policy"];
function fill(select, values, text) {
  select.replaceChildren(...values.map(v => make("option", { value: v }, text ? text(v) : v)));
}
// choose selects a value, also one that is not in the list: a policy with switches turned.
function choose(select, value) {
  if (![...select.options].some(o => o.value === value)) select.append(make("option", { value }, value));
  select.value = value;
}
// pick lets a scenario be chosen: by its group, or by a search for words of its name, its text and its tasks.
const picked = { step: "", explore: "" };
function pick(page, chosen) {
  const button = $(page + "-scenario"), list = $(page + "-list"), search = $(page + "-search"), found = list.querySelector(".found");
  const show = on => { list.hidden = !on; button.setAttribute("aria-expanded", on); if (on) { fill(); search.focus(); search.select(); } };
  const links = () => [...found.querySelectorAll("button")];
  function fill() {
    const words = search.value.toLowerCase().split(/\s+/).filter(w => w), has = s => [s.name, s.about, s.group, ...s.tasks].join(" ").toLowerCase();
    const hits = catalog.scenarios.filter(s => words.every(w => has(s).includes(w)));
    $(page + "-count").textContent = `${hits.length} of ${catalog.scenarios.length}`;
    found.replaceChildren(...catalog.groups.flatMap(g => {
      const of = hits.filter(s => s.group === g.name);
      if (!of.length) return [];
      return [make("section", { "aria-label": g.name }, make("h3", {}, g.name, make("span", { class: "small" }, " " + g.about)),
        make("ul", {}, ...of.map(s => make("li", {}, make("button", { "data-name": s.name, "aria-current": s.name === picked[page] ? "true" : undefined, on: () => take(s.name) }, make("b", {}, s.name), " " + s.about)))))];
    }));
  }
  function take(name) { show(false); setPicked(page, name); chosen(name); button.focus(); }
  button.addEventListener("click", () => show(list.hidden));
  search.addEventListener("input", fill);
  list.addEventListener("keydown", e => {
    const all = links(), i = all.indexOf(document.activeElement);
    if (e.key === "Escape") { e.preventDefault(); show(false); button.focus(); }
    if (e.key === "Enter" && e.target === search && all.length) { e.preventDefault(); take(all[0].dataset.name); }
    if (e.key !== "ArrowDown" && e.key !== "ArrowUp") return;
    e.preventDefault();
    const to = e.key === "ArrowDown" ? i + 1 : i - 1;
    if (to < 0) search.focus(); else if (to < all.length) all[to].focus();
  });
}
function setPicked(page, name) {
  picked[page] = name;
  $(page + "-scenario").textContent = name;
}
function timeline(where, html, title) {
  for (const f of where.querySelectorAll("iframe")) URL.revokeObjectURL(f.src);
  const url = URL.createObjectURL(new Blob([html], { type: "text/html" }));
  where.replaceChildren(make("iframe", { class: "timeline", src: url, title, tabindex: "0" }));
}
// run disables a button while what it has started goes on, and shows an error as a note.
async function run(button, say, f) {
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true");
  try { await f(); } catch (err) { say(err.message); } finally { button.removeAttribute("aria-disabled"); }
}

// Step.
let game, walked, moves = Promise.resolve();
// answer is the program's, or that of the walk of a level, which needs no program.
function answer(question, args) {
  if (question === "open" && args.level !== undefined) {
    const g = graphs.find(g => g.begin.level === args.level);
    if (!g) throw new Error(`unknown level ${args.level}`);
    walked = walk(g);
    return walked.open(args.schedule, args.at);
  }
  return question === "move" && game && game.level ? walked.move(args) : ask(question, args);
}
const sayStep = text => { $("step-note").textContent = text; };
// move makes one move after the other, however fast the keys come.
function move(question, args) {
  moves = moves.then(async () => {
    try {
      game = await answer(question, args);
      view();
    } catch (err) { sayStep(err.message); }
  });
  return moves;
}
const open = place => move("open", place);
function view() {
  const g = game, over = $("step-verdict").hasChildNodes(), focused = document.activeElement && document.activeElement.id;
  if (g.of_level) levelView(g);
  else {
    setPicked("step", g.scenario);
    choose($("step-policy"), g.policy);
    $("step-about").textContent = g.about;
    $("step-goal").textContent = g.goal;
  }
  $("step-replay").textContent = g.replay;
  $("step-terminal").hidden = !g.replay;
  $("step-timeline").replaceChildren();
  $("step-state").replaceChildren(...g.state.map(c => make("div", { class: c.changed ? "changed" : "" }, make("dt", {}, c.name), make("dd", {}, c.value))));
  words(g);
  $("step-tasks").replaceChildren(...g.tasks.map(card));
  $("step-did").replaceChildren(...g.did.map(did).reverse());
  sayStep(g.message || (g.over ? "" : last()));
  const verdict = [];
  if (g.over) {
    const lines = g.verdict.split("\n");
    const more = lines.slice(1).join("\n");
    verdict.push(make("div", { class: "verdict" + (g.violated && !g.level ? " bad" : "") }, g.violated ? make("p", { class: "head" }, g.program ? "The rule is broken: " + g.of_level.rule : g.level ? "Won: the rule is broken" : "Goal reached: " + g.goal) : "",
      make("p", {}, lines[0]), more ? make("details", {}, make("summary", {}, "The whole report"), make("p", {}, more)) : "", g.of_level && g.of_level.moral ? make("p", {}, g.of_level.moral) : "", g.level && g.violated ? nextLevel() : ""));
  }
  $("step-verdict").replaceChildren(...verdict);
  if (g.over && !over) $("step-verdict").scrollIntoView({ block: "nearest" });
  note(g.program ? "own" : g.level ? "levels" : "step", { level: g.level, program: g.program, scenario: g.scenario, policy: g.policy, schedule: g.schedule, at: g.at });
  const again = focused && document.getElementById(focused);
  if (again && again !== document.activeElement) again.focus({ preventScroll: true });
}
// words explains the words of the schedule: those of the state in a line each, the others when their buttons are pressed.
let explained = "";
function words(g) {
  const terms = g.terms || [], says = () => { const t = terms.find(t => t.term === explained); $("step-term").textContent = t ? `${t.term}: ${t.says}.` : ""; };
  $("step-legend").replaceChildren(...(g.legend || []).map(t => make("p", {}, make("b", {}, t.term), " " + t.says)));
  $("step-terms").replaceChildren(...(terms.length ? [make("span", {}, "What is ")] : []), ...terms.map(t => {
    const b = make("button", { id: "term-" + t.term, "aria-pressed": String(t.term === explained), "aria-controls": "step-term", title: t.says, on: () => {
      explained = explained === t.term ? "" : t.term;
      for (const other of $("step-terms").querySelectorAll("button")) other.setAttribute("aria-pressed", String(other.id === "term-" + explained));
      says();
    } }, t.term);
    return b;
  }), ...(terms.length ? [make("span", {}, "?")] : []));
  says();
}
// last says what the last step did, for those who do not see the list.
function last() {
  const s = game.did[game.did.length - 1];
  return s ? `step ${s.step}: task ${s.task}, ${s.text}` : "";
}
function card(t) {
  const name = `task ${t.task} ${t.name}`, off = t.can ? undefined : "true";
  const buttons = [];
  if (t.values > 0) {
    const take = val => move("move", { do: "take", task: t.task, val });
    if (t.values <= 10) {
      for (let v = 0; v < t.values; v++) buttons.push(make("button", { id: `take-${t.task}-${v}`, "aria-disabled": off, "aria-label": `${v}: ${name} takes it for ${t.choice}`, on: () => take(v) }, String(v)));
    } else {
      const n = make("input", { id: `val-${t.task}`, type: "number", min: 0, max: t.values - 1, value: t.default, "aria-label": `value of ${t.choice}` });
      buttons.push(n, make("button", { id: `take-${t.task}`, "aria-disabled": off, on: () => take(Number(n.value)) }, "Take"));
    }
  } else {
    buttons.push(make("button", { id: `one-${t.task}`, class: t.can ? "main" : "", "aria-disabled": off, "aria-keyshortcuts": String(t.task), "aria-label": `Step ${t.task}: one step of ${name}`, on: () => one(t.task) }, "Step ", make("kbd", {}, String(t.task))),
      make("button", { id: `run-${t.task}`, "aria-disabled": off, "aria-label": `Run on: ${name}, until it waits or an operation returns`, on: () => move("move", { do: "run", task: t.task }) }, "Run on"));
  }
  return make("section", { class: "task" + (t.can ? " can" : "") + (t.waits ? " waits" : ""), "aria-label": name },
    make("h3", {}, `${t.task} ${t.name}`), t.lines ? program(t) : make("p", { class: "mono" }, t.op || "nothing to do"), make("p", { class: "status" }, t.status),
    t.next && !t.lines ? make("p", {}, "next: " + t.next) : "", t.values > 0 ? make("p", {}, `choose ${t.choice}, 0 to ${t.values - 1}`) : "", t.held ? make("p", { class: "held" }, t.held) : "",
    make("div", { class: "bar" }, ...buttons));
}
// program is the lines of a task, the next one marked.
function program(t) {
  return make("ol", { class: "program" }, ...t.lines.map((l, i) => make("li", { class: i < t.line ? "done" : "", "aria-current": i === t.line ? "step" : undefined }, l)));
}
const one = task => move("move", { do: "step", task });
function did(s) {
  return make("li", { class: (s.preempts ? "preempts " : "") + (s.culprit ? "culprit" : "") },
    make("span", { class: "n" }, (s.culprit ? "✗ " : s.preempts ? "> " : "") + s.step), make("span", { class: "what t" + Math.min(s.task, 7) }, `${s.task}: ${s.text}`));
}
function reopen() { open({ scenario: picked.step, policy: $("step-policy").value, schedule: "", at: 0 }); }

// Warm-up: the same board, with the program of a level.
function levelView(g) {
  if (!g.level) return; // a program of the visitor's
  const l = g.of_level;
  choose($("levels-name"), g.level);
  $("levels-story").textContent = l.story;
  $("levels-rule").textContent = l.rule;
  if (l.moral) won(g.level);
}
// nextLevel stands in the box that says Won.
function nextLevel() {
  const next = graphs[(graphs.findIndex(g => g.begin.level === game.level) + 1) % graphs.length].begin.level;
  return make("div", { class: "bar" }, make("button", { id: "levels-next", class: "main", on: () => openLevel(next).then(() => $("h-levels").focus()) }, "Next level"));
}
function won(level) {
  const o = [...$("levels-name").options].find(o => o.value === level);
  if (!o.textContent.endsWith("won")) o.textContent += ", won";
}
async function never() {
  const level = game.level, j = walked.never;
  $("levels-said").replaceChildren(make("div", { class: "verdict" + (j.won ? "" : " bad") }, make("p", { class: "head" }, j.won ? "Won" : "Not so"), make("p", {}, j.says), j.moral ? make("p", {}, j.moral) : "",
    make("p", { class: "small" }, "The same in a terminal: ", make("code", {}, j.replay)), j.won ? nextLevel() : ""));
  if (j.won) won(level);
}
function openLevel(name) {
  $("levels-said").replaceChildren();
  return open({ level: name, schedule: "", at: 0 });
}

// Explore.
const lineOf = l => (l.head ? l.head + ": " : "") + l.text;
function foundCard(scenario, f) {
  const bad = f.verdict === "violated", c = make("div", { class: "verdict" + (bad ? " bad" : "") });
  c.append(make("p", { class: "head" }, f.lines[0].text));
  if (bad) {
    const [first, ...more] = f.violated.split("\n");
    c.append(make("p", {}, first), more.length ? make("details", {}, make("summary", {}, "The whole report"), make("p", {}, more.join("\n"))) : "");
  }
  c.append(make("ul", {}, ...f.lines.slice(1).map(l => make("li", {}, lineOf(l)))));
  if (bad) {
    c.append(make("p", { class: "small" }, "The same in a terminal: ", make("code", {}, f.replay)));
    const drawing = make("div");
    const draw = make("button", { on: () => run(draw, t => drawing.replaceChildren(t), async () =>
      timeline(drawing, await ask("timeline", { scenario, policy: f.policy, schedule: f.schedule }), "timeline of schedule " + f.schedule)) }, "Draw the timeline");
    c.append(make("div", { class: "bar" }, make("a", { class: "button", href: address("step", { scenario, policy: f.policy, schedule: f.schedule }) }, "Step through it"), draw));
    return make("div", {}, c, drawing);
  }
  return c;
}
function searching(page, on) {
  $(page + "-stop").setAttribute("aria-disabled", on ? "false" : "true");
  if (page === "explore") { $("explore-progress").hidden = !on; $("explore-progress").value = 0; }
}
const later = "the program is still loading: the search begins when it is there";
let halted = false;
async function explore(policies) {
  const scenario = picked.explore, found = $("explore-found"), say = t => { $("explore-note").textContent = t; };
  note("explore", { scenario, policy: $("explore-policy").value });
  found.replaceChildren();
  halted = false;
  searching("explore", true);
  say(hasProgram ? "searching" : later);
  const rows = make("tbody");
  if (policies.length > 1) {
    found.append(make("div", { class: "scroll" }, make("table", {}, make("caption", {}, scenario + " under every policy"),
      make("thead", {}, make("tr", {}, ...["policy", "verdict", "schedules", "schedule", "seconds"].map(h => make("th", { scope: "col", class: /schedules|seconds/.test(h) ? "num" : "" }, h)))), rows)));
  }
  try {
    for (const policy of policies) {
      if (halted) break;
      const f = await ask("explore", { scenario, policy, preemptions: Number($("explore-bound").value), method: $("explore-method").value }, p => {
        say((policies.length > 1 ? policy + ": " : "") + p.text);
        $("explore-progress").value = p.share;
      });
      if (policies.length === 1) found.append(foundCard(scenario, f));
      else rows.append(make("tr", {}, make("th", { scope: "row" }, policy), make("td", {}, f.stopped ? "stopped" : f.verdict), make("td", { class: "num" }, String(f.schedules)),
        make("td", {}, f.verdict === "violated" ? make("a", { href: address("step", { scenario, policy, schedule: f.schedule }) }, f.schedule || "without preemptions") : "none violates"),
        make("td", { class: "num" }, f.seconds.toFixed(3))));
      say(f.stopped ? "stopped" : "done: " + f.lines[0].text);
    }
  } catch (err) { say(err.message); }
  searching("explore", false);
}
function aboutScenario() {
  const s = catalog.scenarios.find(s => s.name === picked.explore) || { about: "there is no such scenario", tasks: [] };
  $("explore-about").replaceChildren(s.about, make("span", { class: "small" }, make("br"), s.tasks.join("; ")));
}
// policiesOf are those that a scenario is about.
const presets = () => catalog.policies.slice(0, 6).map(p => p.spec);
const policiesOf = name => { const s = catalog.scenarios.find(s => s.name === name); return s && s.policies && s.policies.length ? s.policies : presets(); };

// A program of the visitor's. The board below it is that of Step.
const sayOwn = text => { $("own-note").textContent = text; };
async function openOwn(schedule, at) {
  const program = $("own-text").value;
  $("own-board").hidden = true;
  moves = moves.then(async () => {
    try {
      game = await ask("open", { program, schedule, at });
      $("own-board").hidden = false;
      sayOwn("");
      view();
    } catch (err) { // also an address that holds what is no program
      game = undefined;
      sayOwn(err.message);
      note("own", { program });
    }
  });
  return moves;
}
async function exploreOwn() {
  const program = $("own-text").value, found = $("own-found");
  found.replaceChildren();
  await openOwn("", 0);
  if (!game) { $("own-text").focus(); return; }
  searching("own", true);
  sayOwn("searching");
  try {
    const f = await ask("program", { program }, p => sayOwn(p.text));
    const bad = f.verdict === "violated", [first, ...more] = f.violated.split("\n"), walk = at => openOwn(f.schedule, at).then(() => $("move-next").focus());
    found.append(make("div", { class: "verdict" + (bad ? " bad" : "") }, make("p", { class: "head" }, f.says), make("p", {}, "Rule: " + f.rule),
      bad ? make("p", {}, first) : "", more.length ? make("details", {}, make("summary", {}, "The whole report"), make("p", {}, more.join("\n"))) : "",
      bad ? make("p", {}, "The shortest schedule that breaks it: ", make("code", {}, f.schedule || "the default order")) : "",
      bad ? make("div", { class: "bar" }, make("button", { id: "own-walk", on: () => walk(0) }, "Step through this schedule"), make("button", { on: () => walk(1e9) }, "Show its end")) : ""));
    sayOwn(f.stopped ? "stopped" : `done in ${f.seconds.toFixed(3)} s`);
  } catch (err) { sayOwn(err.message); }
  searching("own", false);
}

// Museum.
function exhibit(number) {
  const e = catalog.museum.find(e => e.number === number) || catalog.museum[0];
  choose($("museum-number"), String(e.number));
  $("museum-exhibit").replaceChildren(make("h3", {}, `${e.number}. ${e.title}`), make("p", { class: "small" }, e.source), make("p", {}, e.story),
    make("p", {}, make("strong", {}, "Rule: "), e.rule), make("p", { class: "small" }, "scenario ", make("code", {}, e.scenario), ", wrong under ", make("code", {}, e.broken), ", right under ", make("code", {}, e.fixed)));
  $("museum-found").replaceChildren();
  $("museum-note").textContent = "";
  note("museum", { exhibit: e.number });
}
async function runExhibit() {
  const e = catalog.museum.find(e => e.number === Number($("museum-number").value)), say = t => { $("museum-note").textContent = t; };
  searching("museum", true);
  say(hasProgram ? "searching" : later);
  try {
    const x = await ask("exhibit", { number: e.number }, p => say(p.text));
    const drawing = make("div");
    $("museum-found").replaceChildren(make("h3", {}, "The wrong order"), foundCard(e.scenario, x.wrong), make("h3", {}, "The right order"), foundCard(e.scenario, x.right), make("h3", {}, "The schedule that shows the bug"), drawing);
    if (x.timeline) timeline(drawing, x.timeline, "timeline of exhibit " + e.number);
    say(x.wrong.stopped || x.right.stopped ? "stopped" : x.ok ? "The exhibit proves itself: the wrong order breaks, and the right one does not." : "The exhibit does not prove itself.");
  } catch (err) { say(err.message); }
  searching("museum", false);
}

// Policies.
const sentence = text => text[0].toUpperCase() + text.slice(1) + ".";
let base, turned;
function switches(list, where) {
  where.replaceChildren(...list.map(t => {
    const id = "switch-" + t.name, box = make("input", { type: "checkbox", role: "switch", id, "aria-describedby": id + "-about" });
    box.checked = turned.has(t.name);
    box.addEventListener("change", () => { if (box.checked) turned.add(t.name); else turned.delete(t.name); spec(); });
    return make("div", { class: "toggle", id: "of-" + t.name }, box, make("label", { for: id }, t.name),
      make("div", { class: "about", id: id + "-about" }, make("p", {}, sentence(t.does)), make("p", { class: "effect" }, sentence(t.effect)),
        make("details", {}, make("summary", {}, "shown by, source"), make("div", {}, "Shown by: " + [t.scenario, t.shows].filter(x => x).join(": ")), make("div", {}, "Source: " + t.source), make("div", {}, make("code", {}, t.kernel)))));
  }));
}
// policyOf is what a policy promises: of a preset the catalog has it, of another the program says it.
async function policyOf(text) {
  const preset = catalog.policies.find(p => p.spec === text);
  if (!preset && !hasProgram) $("policies-promise").textContent = "the program is still loading: it says so when it is there";
  return preset || ask("policy", { spec: text });
}
// showPolicy shows the switches of a specification that begins with the name of a preset.
async function showPolicy(text) {
  const p = await policyOf(text);
  base = catalog.policies.find(b => b.spec === text.split(/[+!]/)[0]);
  turned = new Set(p.on);
  choose($("policies-base"), base.spec);
  switches(catalog.toggles.filter(t => !t.wrong), $("policies-toggles"));
  switches(catalog.toggles.filter(t => t.wrong), $("policies-wrongs"));
  await spec();
}
async function spec() {
  let text = base.spec;
  for (const t of catalog.toggles) {
    const was = base.on.includes(t.name), is = turned.has(t.name);
    if (is !== was) text += (is ? "+" : "!") + t.name;
    $("of-" + t.name).classList.toggle("changed", is !== was);
  }
  $("policies-spec").textContent = text;
  const p = await policyOf(text);
  $("policies-about").textContent = base.about + (text === base.spec ? "" : ", with " + (text.match(/[+!]/g).length === 1 ? "one switch" : text.match(/[+!]/g).length + " switches") + " turned");
  $("policies-promise").textContent = p.promise;
  const asks = here().args.get("scenario"), scenario = catalog.scenarios.some(s => s.name === asks) ? asks : "truncate-race";
  $("policies-step").href = address("step", { scenario, policy: text });
  $("policies-explore").href = address("explore", { scenario, policy: text });
  note("policies", { policy: text, scenario });
}

// Routing. A page shows that it waits for the program or the catalog, and nothing of it can be used, until that is there.
const needsProgram = page => $("page-" + page).dataset.program !== undefined, needsCatalog = page => $("page-" + page).dataset.catalog !== undefined;
const mustWait = page => !hasProgram && needsProgram(page) || !catalog && needsCatalog(page);
function waits(page) {
  const on = mustWait(page);
  $("waiting").hidden = !on;
  $("waiting-key").textContent = "";
  if (needsProgram(page) || needsCatalog(page)) for (const e of $("page-" + page).children) e.inert = on && !e.matches("h2, .lead");
}
// sayUnknown says in a line what of the address is not there, and what is shown in its place.
function sayUnknown(says) {
  $("unknown").textContent = says.join(" ");
  $("unknown").hidden = says.length === 0;
}
// asked is what the address names: of what is not there, the first.
function asked(to, args, page) {
  const says = page ? [`There is no page ${page.slice(0, 60)}: this is the warm-up.`] : [];
  const named = (what, fallback, there) => {
    const name = args.get(what);
    if (name === null || name === "" || there(name)) return name || fallback;
    says.push(`There is no ${what} ${name.slice(0, 60)}: this is ${fallback}.`);
    return fallback;
  };
  const switches = text => (text.match(/[+!][^+!]*/g) || []).every(t => catalog.toggles.some(o => o.name === t.slice(1)));
  const found = {};
  if (to === "levels") found.level = named("level", graphs[0].begin.level, n => graphs.some(g => g.begin.level === n));
  if (to === "museum") found.number = Number(named("exhibit", "1", n => catalog.museum.some(e => String(e.number) === n)));
  if (to === "step" || to === "explore" || to === "policies") {
    found.scenario = named("scenario", "truncate-race", n => catalog.scenarios.some(s => s.name === n));
    found.policy = named("policy", "unlocked", n => catalog.policies.some(p => p.spec === n.split(/[+!]/)[0]) && switches(n));
  }
  sayUnknown(says);
  return found;
}
let page;
function route() {
  if (location.hash === shown) return;
  if (location.hash === "#main") return;
  const { page: to, unknown, args } = here();
  sayUnknown(unknown ? [`There is no page ${unknown.slice(0, 60)}: this is the warm-up.`] : []);
  for (const s of document.querySelectorAll(".page")) s.hidden = s.id !== "page-" + to;
  for (const a of document.querySelectorAll("nav a")) { if (a.dataset.page === to) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current"); }
  if (page && page !== to) $("h-" + to).focus();
  page = to;
  waits(to);
  if (mustWait(to)) return;
  const { level, scenario, policy, number } = asked(to, args, unknown);
  if (to === "step" || to === "levels" || to === "own") $(to + "-board").append($("board"));
  switch (to) {
  case "levels":
    $("levels-said").replaceChildren();
    return open({ level, schedule: args.get("schedule") || "", at: Number(args.get("at")) || 0 });
  case "step":
    return open({ scenario, policy, schedule: args.get("schedule") || "", at: Number(args.get("at")) || 0 });
  case "explore":
    setPicked("explore", scenario);
    choose($("explore-policy"), policy);
    aboutScenario();
    return note("explore", { scenario, policy });
  case "own":
    $("own-text").value = args.get("program") || catalog.example;
    $("own-found").replaceChildren();
    return openOwn(args.get("schedule") || "", Number(args.get("at")) || 0);
  case "museum":
    return exhibit(number);
  case "policies":
    return showPolicy(policy).catch(err => { $("policies-about").textContent = err.message; });
  }
}

async function begin() {
  catalog = await catalogCame;
  document.documentElement.dataset.listed = Math.round(performance.now());
  for (const id of [...policySelects, "policies-base"]) fill($(id), catalog.policies.map(p => p.spec));
  fill($("explore-method"), ["", ...catalog.methods], m => m || "the scenario's");
  fill($("museum-number"), catalog.museum.map(e => String(e.number)), n => n + ". " + catalog.museum.find(e => e.number === Number(n)).title);
  const waited = async () => {
    shown = undefined;
    await route();
  };
  if (needsCatalog(page)) await waited();
  await ready;
  hasProgram = true;
  $("step-draw").removeAttribute("aria-disabled");
  if (needsProgram(page)) await waited();
  const ms = Math.round(performance.now());
  document.documentElement.dataset.ready = ms;
  loaded(`ready after ${(ms / 1000).toFixed(1)} s`);
}

addEventListener("hashchange", route);
// A scenario is for some policies.
function policyFor(page) {
  const l = policiesOf(picked[page]);
  if (!l.includes($(page + "-policy").value)) choose($(page + "-policy"), l[0]);
}
pick("step", () => { policyFor("step"); reopen(); });
$("step-policy").addEventListener("change", reopen);
for (const [id, what] of [["move-undo", "undo"], ["move-next", "next"], ["move-finish", "finish"], ["move-begin", "begin"]]) $(id).addEventListener("click", () => move("move", { do: what }));
$("levels-name").addEventListener("change", () => openLevel($("levels-name").value));
$("levels-never").addEventListener("click", () => run($("levels-never"), sayStep, never));
$("step-copy").addEventListener("click", async () => {
  try { await navigator.clipboard.writeText(location.href); sayStep("copied"); } catch { sayStep("copy this: " + location.href); }
});
$("step-draw").addEventListener("click", () => run($("step-draw"), sayStep, async () =>
  timeline($("step-timeline"), await ask("timeline", { level: game.level, program: game.program, scenario: game.scenario, policy: game.policy, schedule: game.schedule }), "timeline of schedule " + game.schedule)));
addEventListener("keydown", e => {
  if (e.target.closest && e.target.closest(".picklist")) return;
  if (!hasProgram && page === "step" && /^[0-9unfb]$/.test(e.key)) $("waiting-key").textContent = `The key ${e.key} was not heard: press it again when the program is there.`;
  if (page !== "step" && page !== "levels" && page !== "own" || !game || !hasProgram && needsProgram(page) || e.ctrlKey || e.altKey || e.metaKey || /^(SELECT|INPUT|TEXTAREA)$/.test(e.target.tagName)) return;
  const digit = /^Digit([0-9])$/.exec(e.code) || /^Numpad([0-9])$/.exec(e.code);
  if (digit) {
    const t = game.tasks.find(t => t.task === Number(digit[1]));
    if (t && t.values > 0) { sayStep(`choose ${t.choice}: Tab goes to its values`); return; }
    e.preventDefault();
    move("move", { do: e.shiftKey ? "run" : "step", task: Number(digit[1]) });
    return;
  }
  if (e.key === "x" && page === "levels") { e.preventDefault(); run($("levels-never"), sayStep, never); return; }
  const what = { u: "undo", n: "next", f: "finish", b: "begin" }[e.key];
  if (what) { e.preventDefault(); move("move", { do: what }); }
});
pick("explore", () => { policyFor("explore"); aboutScenario(); note("explore", { scenario: picked.explore, policy: $("explore-policy").value }); });
$("explore-go").addEventListener("click", () => run($("explore-go"), () => {}, () => explore([$("explore-policy").value])));
$("explore-all").addEventListener("click", () => run($("explore-all"), () => {}, () => explore(policiesOf(picked.explore))));
$("own-go").addEventListener("click", () => run($("own-go"), sayOwn, exploreOwn));
$("own-step").addEventListener("click", () => { $("own-found").replaceChildren(); openOwn("", 0).then(() => { if (game) $("board").scrollIntoView({ block: "nearest" }); }); });
$("own-text").addEventListener("change", () => note("own", { program: $("own-text").value }));
$("own-copy").addEventListener("click", async () => {
  note("own", { program: $("own-text").value });
  try { await navigator.clipboard.writeText(location.href); sayOwn("copied"); } catch { sayOwn("copy this: " + location.href); }
});
for (const id of ["explore-stop", "museum-stop", "own-stop"]) $(id).addEventListener("click", () => { if ($(id).getAttribute("aria-disabled") !== "true") { halted = true; stop(); } });
$("museum-number").addEventListener("change", () => exhibit(Number($("museum-number").value)));
$("museum-go").addEventListener("click", () => run($("museum-go"), () => {}, runExhibit));
$("policies-base").addEventListener("change", () => showPolicy($("policies-base").value));
// What is wider than its place can be scrolled by the keyboard: then it has the focus, and a name.
function scrolls(e) {
  const on = e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1, named = e.matches(".did");
  if (on) e.setAttribute("tabindex", "0"); else e.removeAttribute("tabindex");
  if (named) return; // a list with a name of its own
  const of = e.querySelector("caption") || (e.closest("figure") || e).querySelector("figcaption");
  for (const [k, v] of [["role", "region"], ["aria-label", of ? of.textContent : "Table"]]) if (on) e.setAttribute(k, v); else e.removeAttribute(k);
}
const sized = new ResizeObserver(all => { for (const e of all) scrolls(e.target); });
function watchScrolls() { for (const e of document.querySelectorAll(".wide, .scroll, .did")) sized.observe(e); }
new MutationObserver(() => { watchScrolls(); for (const e of document.querySelectorAll(".did")) scrolls(e); }).observe($("main"), { subtree: true, childList: true });
watchScrolls();
const graphs = JSON.parse($("levels-data").textContent);
fill($("levels-name"), graphs.map(g => g.begin.level), n => graphs.findIndex(g => g.begin.level === n) + 1 + ". " + graphs.find(g => g.begin.level === n).begin.of_level.title);
route();
start();
begin().catch(err => failed(err.message));
setTimeout(download); // once the warm-up is shown
})();
