package site

import (
	"fmt"
	"slices"

	"btrlab/internal/iopath/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
)

// game is the Play on the page.
type game struct {
	s    *scenario.Scenario
	pol  *policy.Policy
	play *timeline.Play
}

// Place names a place in a schedule of a scenario: what a shared address holds.
type Place struct {
	Scenario string `json:"scenario"`
	Policy   string `json:"policy"`
	Schedule string `json:"schedule"`
	At       int    `json:"at"` // steps done; 0 is the beginning
}

// Move is what the player does: one of step, take, run, undo, next, finish, begin.
type Move struct {
	Do   string `json:"do"`
	Task int    `json:"task"`
	Val  int    `json:"val"` // of take
}

// View is the page of a game.
type View struct {
	Place
	About    string     `json:"about"`
	Goal     string     `json:"goal"`
	Over     bool       `json:"over"`
	Violated bool       `json:"violated"`
	Verdict  string     `json:"verdict"` // when it is over
	Message  string     `json:"message"` // why the move was refused
	Replay   string     `json:"replay"`
	State    []Cell     `json:"state"`
	Tasks    []TaskView `json:"tasks"`
	Did      []StepView `json:"did"` // the steps done, in order
}

// Cell is a value of the file's state.
type Cell struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Changed bool   `json:"changed"` // by the last step
}

// TaskView is a task that the player can choose.
type TaskView struct {
	Task    int    `json:"task"`
	Name    string `json:"name"`
	Op      string `json:"op"`
	Status  string `json:"status"`
	Next    string `json:"next"`
	Held    string `json:"held"`
	Can     bool   `json:"can"`
	Waits   bool   `json:"waits"`
	Choice  string `json:"choice"`  // what the next step chooses, empty for other steps
	Values  int    `json:"values"`  // of it
	Default int    `json:"default"` // the value that comes by itself
}

// StepView is a step done.
type StepView struct {
	Step     int    `json:"step"`
	Task     int    `json:"task"`
	Text     string `json:"text"`
	Preempts bool   `json:"preempts"`
	Culprit  bool   `json:"culprit"`
}

// find is the scenario and the policy of a place.
func (p *Place) find() (*scenario.Scenario, *policy.Policy, error) {
	s, err := scenario.Lookup(p.Scenario)
	if err != nil {
		return nil, nil, err
	}
	pol, err := policy.Parse(p.Policy)
	return s, &pol, err
}

// open begins a game at a place.
func (d *Desk) open(p Place) (*View, error) {
	s, pol, err := p.find()
	if err != nil {
		return nil, err
	}
	play, err := timeline.NewPlay(p.Schedule, func(schedule string) (*scenario.Trace, error) {
		return scenario.Replay(s, pol, schedule, false)
	})
	if err != nil {
		return nil, fmt.Errorf("%s under %s: %w", p.Scenario, p.Policy, err)
	}
	for play.At() < p.At && play.Next() {
	}
	d.game = &game{s, pol, play}
	return d.game.view(""), nil
}

// move makes a move.
func (d *Desk) move(m Move) (*View, error) {
	g := d.game
	if g == nil {
		return nil, fmt.Errorf("bad move %q, have no scenario open", m.Do)
	}
	p, refused := g.play, ""
	try := func(err error) {
		if err != nil {
			refused = p.Why(m.Task)
		}
	}
	switch m.Do {
	case "step":
		try(p.Choose(m.Task))
	case "take":
		try(p.Take(m.Task, m.Val))
	case "run":
		try(p.RunOn(m.Task))
	case "undo":
		if !p.Undo() {
			refused = "this is the beginning"
		}
	case "next":
		if !p.Next() {
			refused = "nothing is left to do: u takes a step back"
		}
	case "finish":
		p.Finish()
	case "begin":
		p.Restart()
	default:
		return nil, fmt.Errorf("bad move, have %q want step, take, run, undo, next, finish or begin", m.Do)
	}
	return g.view(refused), nil
}

func (g *game) view(message string) *View {
	p, tr := g.play, g.play.Trace()
	m, at := p.Now(), p.At()
	v := &View{Place: Place{g.s.Name, g.pol.Name, p.Schedule(), at}, About: g.s.About, Goal: g.s.Aim(), Over: p.Over(), Message: message,
		Replay: scenario.ReplayCommand(g.s.Name, g.pol.Name, p.Schedule(), false), Tasks: []TaskView{}, Did: []StepView{}, State: []Cell{}}
	culprit := -1
	if v.Over {
		v.Verdict, v.Violated = p.Verdict(), tr.Kind != explore.OK
		culprit = timeline.Culprit(tr)
	}
	var before []string
	if at > 0 {
		moment := timeline.At(tr, at-1)
		before = moment.State
	}
	for i, name := range tr.Columns {
		if i < len(m.State) {
			v.State = append(v.State, Cell{name, m.State[i], i < len(before) && before[i] != m.State[i]})
		}
	}
	for t := range tr.Tasks {
		if !slices.Contains(timeline.Shown(tr), t) {
			continue
		}
		a := &m.Tasks[t]
		x := TaskView{Task: t, Name: tr.Tasks[t], Op: a.Op, Status: p.Status(&m, t), Next: a.Coming(), Held: a.Holding(), Can: p.Can(t), Waits: a.Phase == timeline.Waiting}
		x.Choice, x.Values, x.Default = p.Choice(t)
		v.Tasks = append(v.Tasks, x)
	}
	for i := range tr.Steps[:at] {
		if s := &tr.Steps[i]; timeline.Tells(s) {
			v.Did = append(v.Did, StepView{i, s.Task, timeline.Did(s), s.Preempts, i == culprit})
		}
	}
	return v
}

// timeline draws a whole schedule, as replay does.
func (d *Desk) timeline(p Place) (string, error) {
	s, pol, err := p.find()
	if err != nil {
		return "", err
	}
	tr, err := scenario.Replay(s, pol, p.Schedule, false)
	if err != nil {
		return "", err
	}
	if tr.Kind == explore.KindMisfit {
		return "", fmt.Errorf("%s under %s: %v", s.Name, pol.Name, tr.Violation)
	}
	return drawn(tr)
}
