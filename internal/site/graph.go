package site

import (
	"encoding/json"
	"fmt"
	"slices"

	"btrlab/internal/study/levels"
)

// Graph is a level played in every way: what the page needs for the level before the program is
// there. It holds what a Desk has answered, so that walk.js, which walks it, knows no rule.
//
// A node is a moment: what the tasks and the words are, and which task ran last, because the
// default order lets that one go on. What a player has done, and the schedule of it, is the way
// through the graph.
type Graph struct {
	// Begin is the page at the beginning.
	Begin *View `json:"begin"`
	// Never is the judgement of the answer that no schedule breaks the level.
	Never *Judged `json:"never"`
	// Moral is shown once the level is won.
	Moral string `json:"moral"`
	// Tasks are the views of tasks that Node.Tasks counts, Verdicts those that Node.Verdict counts.
	Tasks    []GraphTask `json:"tasks"`
	Verdicts []string    `json:"verdicts"`
	Nodes    []Node      `json:"nodes"` // the first is the beginning
}

// GraphTask is what changes in the view of a task.
type GraphTask struct {
	Status string `json:"status"`
	Next   string `json:"next"`
	Held   string `json:"held"`
	Can    bool   `json:"can"`
	Waits  bool   `json:"waits"`
	Line   int    `json:"line"`
	// Why is the reason why the task can do no step, for one that cannot.
	Why string `json:"why"`
}

// Node is a moment of a level.
type Node struct {
	State []string `json:"s"` // values, in the order of Begin.State
	Tasks []int    `json:"t"` // of Graph.Tasks
	Moves []Edge   `json:"m,omitempty"`
	// Default is the index in Moves of the step that comes by itself.
	Default int `json:"d,omitempty"`
	// Verdict is the index in Graph.Verdicts when no step is left, and Violated says that it is
	// none that keeps the rule.
	Verdict  int  `json:"v,omitempty"`
	Violated bool `json:"b,omitempty"`
}

// Edge is a step.
type Edge struct {
	Task     int    `json:"t"`
	To       int    `json:"n"`
	Text     string `json:"x"`
	Preempts bool   `json:"p,omitempty"`
	Culprit  bool   `json:"c,omitempty"` // a verdict is about it
}

// maxNodes bounds the graph of one level; the largest has a fraction of it.
const maxNodes = 20_000

// Graphs are the graphs of all levels, in their order.
func Graphs() ([]*Graph, error) {
	var all []*Graph
	for _, l := range levels.All {
		g, err := graphOf(l)
		if err != nil {
			return nil, fmt.Errorf("level %s: %w", l.Name, err)
		}
		all = append(all, g)
	}
	return all, nil
}

// drawing is a Graph in the making.
type drawing struct {
	*Graph
	desk  Desk
	at    map[string]int // node by its content
	place []Place        // of each node: one way to it
}

// graphOf plays a level in every way. A node that is reached in two ways is looked at both times,
// and has to be the same.
func graphOf(l *levels.Level) (*Graph, error) {
	d := &drawing{Graph: &Graph{Moral: l.Moral}, at: map[string]int{}}
	var err error
	if d.Begin, err = d.desk.open(Place{Level: l.Name}); err != nil {
		return nil, err
	}
	if d.Never, err = d.desk.never(struct{ Level string }{l.Name}); err != nil {
		return nil, err
	}
	if _, err := d.node(d.Begin); err != nil {
		return nil, err
	}
	for n := 0; n < len(d.Nodes); n++ {
		if len(d.Nodes) > maxNodes {
			return nil, fmt.Errorf("bad graph, have %d nodes want at most %d", len(d.Nodes), maxNodes)
		}
		if err := d.moves(n); err != nil {
			return nil, err
		}
	}
	return d.Graph, nil
}

// moves makes all steps from node n.
func (d *drawing) moves(n int) error {
	v, err := d.desk.open(d.place[n])
	if err != nil || v.Over {
		return err
	}
	next, err := d.desk.move(Move{Do: "next"})
	if err != nil {
		return err
	}
	byItself := next.Did[len(next.Did)-1].Task
	for _, t := range v.Tasks {
		if !t.Can {
			continue
		}
		if _, err := d.desk.open(d.place[n]); err != nil {
			return err
		}
		to, err := d.desk.move(Move{Do: "step", Task: t.Task})
		if err != nil {
			return err
		}
		e := Edge{Task: t.Task}
		if e.To, err = d.node(to); err != nil {
			return err
		}
		did := to.Did[len(to.Did)-1]
		e.Text, e.Preempts, e.Culprit = did.Text, did.Preempts, did.Culprit
		if t.Task == byItself {
			d.Nodes[n].Default = len(d.Nodes[n].Moves)
		}
		d.Nodes[n].Moves = append(d.Nodes[n].Moves, e)
	}
	return nil
}

// node is the node of what a Desk shows; the desk is there.
func (d *drawing) node(v *View) (int, error) {
	n := Node{Violated: v.Violated}
	for _, c := range v.State {
		n.State = append(n.State, c.Value)
	}
	for _, t := range v.Tasks {
		g := GraphTask{Status: t.Status, Next: t.Next, Held: t.Held, Can: t.Can, Waits: t.Waits, Line: t.Line}
		if !t.Can {
			g.Why = d.desk.game.play.Why(t.Task)
		}
		n.Tasks = append(n.Tasks, indexOf(&d.Graph.Tasks, g))
	}
	if v.Over {
		n.Verdict = indexOf(&d.Verdicts, v.Verdict)
	}
	last := -1
	if len(v.Did) > 0 && !v.Over {
		last = v.Did[len(v.Did)-1].Task
	}
	key, err := json.Marshal([]any{n, v.Over, last})
	if err != nil {
		return 0, err
	}
	if at, ok := d.at[string(key)]; ok {
		return at, nil
	}
	d.at[string(key)] = len(d.Nodes)
	d.Nodes = append(d.Nodes, n)
	d.place = append(d.place, v.Place)
	return len(d.Nodes) - 1, nil
}

// indexOf is the index of x in list, to which it is added if it is not there.
func indexOf[T comparable](list *[]T, x T) int {
	i := slices.Index(*list, x)
	if i < 0 {
		i = len(*list)
		*list = append(*list, x)
	}
	return i
}
