package site

import (
	"fmt"
	"slices"

	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/levels"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
)

// game is the Play on the page: of a scenario under a policy, or of a level.
type game struct {
	of          Place // with neither schedule nor step
	about, goal string
	replay      func(schedule string) string // the command of a terminal
	level       *levels.Level                // nil for a scenario
	play        *timeline.Play
}

// Place names a place in a schedule of a scenario, or of a level: what a shared address holds.
type Place struct {
	Level    string `json:"level,omitempty"`   // else a scenario and a policy
	Program  string `json:"program,omitempty"` // in the language of levels.Parse; else a level
	Scenario string `json:"scenario"`
	Policy   string `json:"policy"`
	Schedule string `json:"schedule"`
	At       int    `json:"at"` // steps done; 0 is the beginning
}

// Move is an action of the player: one of step, take, run, undo, next, finish, begin.
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
	Level    *LevelView `json:"of_level,omitempty"`
	// Legend explains the columns of State, and Terms the locks and functions that the steps name.
	Legend []timeline.Term `json:"legend,omitempty"`
	Terms  []timeline.Term `json:"terms,omitempty"`
}

// LevelView has the other parts of a level's page.
type LevelView struct {
	Title string `json:"title"`
	Story string `json:"story"`
	Rule  string `json:"rule"`
	Moral string `json:"moral"` // once the level is won
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
	// Lines are the task's program and Line is the next one of them; a scenario has none.
	Lines []string `json:"lines,omitempty"`
	Line  int      `json:"line"`
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
	g, run, err := p.game()
	if err != nil {
		return nil, err
	}
	if g.play, err = timeline.NewPlay(p.Schedule, run); err != nil {
		return nil, fmt.Errorf("%s: %w", p.name(), err)
	}
	for g.play.At() < p.At && g.play.Next() {
	}
	d.game = g
	return g.view(""), nil
}

// name is the name of the place.
func (p *Place) name() string {
	switch {
	case p.Program != "":
		return "the program"
	case p.Level != "":
		return "level " + p.Level
	}
	return p.Scenario + " under " + p.Policy
}

// game is the game of the place, without its Play, and what replays a schedule of it.
func (p *Place) game() (*game, func(schedule string) (*scenario.Trace, error), error) {
	if p.Program != "" {
		l, err := levels.Parse(p.Program)
		if err != nil {
			return nil, nil, err
		}
		return &game{of: Place{Program: p.Program}, goal: l.Goal(), replay: func(string) string { return "" }, level: l},
			func(schedule string) (*scenario.Trace, error) {
				tr := l.Replay(schedule)
				tr.Replay = "" // no command knows the program
				return tr, nil
			}, nil
	}
	if p.Level != "" {
		l, err := levels.Lookup(p.Level)
		if err != nil {
			return nil, nil, err
		}
		return &game{of: Place{Level: l.Name}, about: l.Story, goal: l.Goal(), replay: l.Command, level: l},
			func(schedule string) (*scenario.Trace, error) { return l.Replay(schedule), nil }, nil
	}
	s, pol, err := p.find()
	if err != nil {
		return nil, nil, err
	}
	return &game{of: Place{Scenario: s.Name, Policy: pol.Name}, about: s.About, goal: s.Aim(),
			replay: func(schedule string) string { return scenario.ReplayCommand(s.Name, pol.Name, schedule, false) }},
		func(schedule string) (*scenario.Trace, error) { return scenario.Replay(s, pol, schedule, false) }, nil
}

// Judged is the judgement of the answer that no schedule breaks a level.
type Judged struct {
	Won   bool   `json:"won"`
	Says  string `json:"says"`
	Moral string `json:"moral"` // once it is won
	// Schedules is how many the search has run.
	Schedules int    `json:"schedules"`
	Replay    string `json:"replay"` // the command of a terminal
}

// never judges the answer that no schedule breaks the level.
func (d *Desk) never(a struct{ Level string }) (*Judged, error) {
	l, err := levels.Lookup(a.Level)
	if err != nil {
		return nil, err
	}
	v := l.Judge(levels.Never)
	j := &Judged{Won: v.Won, Says: v.Says, Schedules: v.Schedules, Replay: l.Command(levels.Never)}
	if v.Won {
		j.Moral = l.Moral
	}
	return j, nil
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
	v := &View{Place: g.of, About: g.about, Goal: g.goal, Over: p.Over(), Message: message, Replay: g.replay(p.Schedule()), Tasks: []TaskView{}, Did: []StepView{}, State: []Cell{}}
	v.Schedule, v.At = p.Schedule(), at
	culprit := -1
	if v.Over {
		v.Verdict, v.Violated = p.Verdict(), tr.Kind != explore.OK
		culprit = timeline.Culprit(tr)
	}
	if l := g.level; l != nil {
		v.Level = &LevelView{Title: l.Title, Story: l.Story, Rule: l.Rule()}
		if v.Violated {
			v.Level.Moral = l.Moral
		}
	}
	if g.level == nil {
		v.Legend, v.Terms = timeline.Terms(tr)
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
		if g.level != nil {
			x.Lines = g.level.Tasks[t].Lines
			for _, s := range tr.Steps[:at] { // a line is a step
				if s.Task == t && s.Kind != "start" {
					x.Line++
				}
			}
		}
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
	_, run, err := p.game()
	if err != nil {
		return "", err
	}
	tr, err := run(p.Schedule)
	if err != nil {
		return "", err
	}
	if tr.Kind == explore.KindMisfit {
		return "", fmt.Errorf("%s: %v", p.name(), tr.Violation)
	}
	return drawn(tr)
}
