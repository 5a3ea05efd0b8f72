package site

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/study/levels"
)

// The graph of each level says what a Desk says, on ways that nobody chose: what a step leads to,
// which one comes by itself, why a task cannot go on, and the verdict. That walk.js walks it so,
// with every move, is TestWalkInChromium's matter.
func TestGraphs(t *testing.T) {
	graphs, err := Graphs()
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i, g := range graphs {
		l := levels.All[i]
		var d Desk
		for range 40 {
			v := ask[View](t, &d, "open", Place{Level: l.Name})
			if !reflect.DeepEqual(v, *g.Begin) {
				t.Fatalf("%s begins with %+v, want %+v", l.Name, *g.Begin, v)
			}
			n := &g.Nodes[0]
			for !v.Over {
				e := &n.Moves[r.IntN(len(n.Moves))]
				next := ask[View](t, &d, "move", Move{Do: "next"})
				if by := next.Did[len(next.Did)-1].Task; by != n.Moves[n.Default].Task {
					t.Fatalf("%s, schedule %q: by itself task %d goes on, the graph says %d", l.Name, v.Schedule, by, n.Moves[n.Default].Task)
				}
				ask[View](t, &d, "move", Move{Do: "undo"})
				v = ask[View](t, &d, "move", Move{Do: "step", Task: e.Task})
				did := v.Did[len(v.Did)-1]
				if did.Text != e.Text || did.Preempts != e.Preempts || did.Culprit != e.Culprit {
					t.Fatalf("%s, schedule %q: the step is %+v, the graph says %+v", l.Name, v.Schedule, did, e)
				}
				n = &g.Nodes[e.To]
				same(t, &d, g, n, &v)
			}
		}
		if j := ask[Judged](t, &d, "never", map[string]string{"level": l.Name}); j != *g.Never {
			t.Errorf("%s: never is %+v, the graph says %+v", l.Name, j, *g.Never)
		}
	}
}

// same holds a node to what the Desk shows.
func same(t *testing.T, d *Desk, g *Graph, n *Node, v *View) {
	t.Helper()
	if v.Over != (len(n.Moves) == 0) || v.Violated != n.Violated || v.Over && v.Verdict != g.Verdicts[n.Verdict] {
		t.Fatalf("%s, schedule %q: over %v, %q; the graph says %+v", v.Place.Level, v.Schedule, v.Over, v.Verdict, n)
	}
	for i, c := range v.State {
		if c.Value != n.State[i] {
			t.Fatalf("%s, schedule %q: %s is %s, the graph says %s", v.Place.Level, v.Schedule, c.Name, c.Value, n.State[i])
		}
	}
	for i, x := range v.Tasks {
		want := GraphTask{Status: x.Status, Next: x.Next, Held: x.Held, Can: x.Can, Waits: x.Waits, Line: x.Line}
		if can := slices.ContainsFunc(n.Moves, func(e Edge) bool { return e.Task == x.Task }); can != x.Can {
			t.Fatalf("%s, schedule %q: task %d can go on: %v, the graph says %v", v.Place.Level, v.Schedule, x.Task, x.Can, can)
		}
		if !x.Can {
			refused := ask[View](t, d, "move", Move{Do: "step", Task: x.Task})
			want.Why = refused.Message
		}
		if have := g.Tasks[n.Tasks[i]]; have != want {
			t.Fatalf("%s, schedule %q: task %d is %+v, the graph says %+v", v.Place.Level, v.Schedule, x.Task, want, have)
		}
	}
	if want := g.Moral; n.Violated && v.Level.Moral != want || !n.Violated && v.Level.Moral != "" {
		t.Fatalf("%s: the moral is %q, the graph says %q", v.Place.Level, v.Level.Moral, strings.TrimSpace(want))
	}
}
