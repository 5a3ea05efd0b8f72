"use strict";
// walk plays a level on its graph, which Go has made (graph.go): it knows no rule of a level. The way is the steps done, up to at,
// and after them those that come by themselves; a player who chooses another one leaves that way. Its answers are those of a Desk.
globalThis.walk = g => {
  const first = g.begin.at, over = "nothing is left to do: u takes a step back";
  let way = [], at = 0;
  const node = i => g.nodes[i > 0 ? way[i - 1].n : 0];
  const byItself = n => n.m[n.d || 0];
  const goOn = () => { for (let n; (n = node(way.length)).m;) way.push(byItself(n)); };
  const edge = task => (node(at).m || []).find(e => e.t === task);
  const leave = e => { way.length = at; way.push(e); goOn(); };
  function step(task) {
    const e = edge(task);
    if (!e) return false;
    if (way[at].t !== task) leave(e);
    at++;
    return true;
  }
  function why(task) {
    const t = node(at).t[task];
    return t === undefined ? "there is no task " + task : g.tasks[t].why;
  }
  // A schedule names the steps that do not come by themselves.
  const schedule = () => way.slice(0, at).flatMap((e, i) => e === byItself(node(i)) ? [] : [`${first + i}:${e.t}`]).join(",");
  function view(message) {
    const n = node(at), before = node(at - 1), begin = g.begin, s = schedule();
    return {
      ...begin, schedule: s, at: first + at, over: !n.m, violated: !!n.b, verdict: n.m ? "" : g.verdicts[n.v || 0], message, replay: begin.replay.replace("''", `'${s}'`),
      state: begin.state.map((c, i) => ({ name: c.name, value: n.s[i], changed: at > 0 && n.s[i] !== before.s[i] })),
      tasks: begin.tasks.map((t, i) => { const { why, ...now } = g.tasks[n.t[i]]; return { ...t, ...now }; }),
      did: way.slice(0, at).map((e, i) => ({ step: first + i, task: e.t, text: e.x, preempts: !!e.p, culprit: !!e.c })),
      of_level: { ...begin.of_level, moral: n.b ? g.moral : "" },
    };
  }
  const moves = {
    step: m => step(m.task) ? "" : why(m.task),
    run: m => { let some = false; while (step(m.task)) some = true; return some ? "" : why(m.task); },
    undo: () => at > 0 ? (at--, "") : "this is the beginning",
    next: () => at < way.length ? (at++, "") : over,
    finish: () => { at = way.length; return ""; },
    begin: () => { at = 0; return ""; },
  };
  goOn();
  return {
    never: g.never,
    move: m => view(moves[m.do](m)),
    // open goes to a place of a schedule.
    open(schedule, place) {
      way = [];
      at = 0;
      goOn();
      for (const d of schedule ? schedule.split(",") : []) {
        const [, i, task] = /^(\d+):(\d+)$/.exec(d) || [];
        at = i - first;
        const e = at >= 0 && at < way.length && edge(Number(task));
        if (!e) throw new Error(`level ${g.begin.level}: ${schedule} is no schedule of it, at ${d}`);
        leave(e);
      }
      at = Math.max(0, Math.min(way.length, place - first));
      return view("");
    },
  };
};
