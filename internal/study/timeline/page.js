let at = -1, stack = false;
const panel = document.getElementById("now");
function line(tag, text) { const e = document.createElement(tag); e.textContent = text; return e; }
function show(i, scroll) {
  if (steps.length === 0) return;
  i = Math.max(0, Math.min(steps.length - 1, i));
  if (at >= 0) document.getElementById("s" + steps[at].step).classList.remove("on");
  at = i;
  const s = steps[i], row = document.getElementById("s" + s.step);
  row.classList.add("on");
  const list = document.createElement("ul");
  for (const t of s.tasks) list.append(line("li", t));
  const words = document.createElement("div");
  words.append(line("strong", s.what + (s.mark.includes("p") ? " (preempts)" : "") + (s.mark.includes("c") ? " ✗" : "")), line("div", "after it: " + s.state), list);
  panel.replaceChildren(words);
  if (s.stack) {
    const calls = document.createElement("details");
    calls.open = stack;
    calls.addEventListener("toggle", () => { stack = calls.open; });
    calls.append(line("summary", "calls (c)"), line("pre", s.stack));
    panel.append(calls);
  }
  if (scroll) {
    if (getComputedStyle(frame).overflowX === "auto") within(row);
    const r = row.getBoundingClientRect(), low = innerHeight - panel.offsetHeight - 30;
    if (r.top < 60) scrollBy(0, r.top - 60); else if (r.bottom > low) scrollBy(0, r.bottom - low);
    history.replaceState(null, "", "#s" + s.step);
  }
}
// On a narrow window the lanes are in a frame of their own, which shows the step and its lane.
const frame = document.querySelector(".scroll"), hint = document.getElementById("hint");
function within(row) {
  const box = row.querySelector(".box").getBoundingClientRect(), f = frame.getBoundingClientRect(), head = frame.querySelector(".top").offsetHeight;
  if (box.top < f.top + head) frame.scrollTop -= f.top + head - box.top; else if (box.bottom > f.bottom) frame.scrollTop += box.bottom - f.bottom + 4;
  if (box.left < f.left || box.right > f.right) frame.scrollLeft += box.left - f.left - 8;
}
const wide = () => { hint.hidden = frame.scrollWidth <= frame.clientWidth || getComputedStyle(frame).overflowX !== "auto"; };
addEventListener("resize", wide);
wide();
function find(mark) { for (let k = 1; k <= steps.length; k++) { const j = (at + k) % steps.length; if (steps[j].mark.includes(mark)) return j; } return at; }
addEventListener("keydown", e => {
  if (e.ctrlKey || e.altKey || e.metaKey) return;
  if (e.key === "c") { stack = !stack; show(at, false); return; }
  const to = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: steps.length - 1, p: find("p"), x: find("c") }[e.key];
  if (to === undefined) return;
  e.preventDefault();
  show(to, true);
});
for (const row of document.querySelectorAll(".row")) row.addEventListener("click", () => show(steps.findIndex(s => "s" + s.step === row.id), false));
const from = steps.findIndex(s => "#s" + s.step === location.hash);
show(from >= 0 ? from : Math.max(0, steps.findIndex(s => s.mark.includes("c"))), from >= 0);
