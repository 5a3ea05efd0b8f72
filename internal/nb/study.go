package nb

import (
	"cmp"
	"fmt"
	"html"
	"regexp"
	"strconv"
	"strings"
	"time"

	"btrlab/internal/draw"
	"btrlab/internal/measure/reproduce"
	"btrlab/internal/measure/seeds"
	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
)

// MaxSchedules bounds a search; so does a time of maxSearch.
const MaxSchedules = 20_000

const maxSearch = 5 * time.Second

// lookup finds a scenario and a policy.
func lookup(name, spec string) (*scenario.Scenario, *policy.Policy, error) {
	s, err := scenario.Lookup(name)
	if err != nil {
		return nil, nil, err
	}
	p, err := policy.Parse(spec)
	return s, &p, err
}

// Scenarios lists scenarios with what they are: those named, or all that can be explored.
func Scenarios(names ...string) (Table, error) {
	t := Table{Caption: "Scenarios", Head: []string{"scenario", "what it is"}}
	list := scenario.All()
	if len(names) > 0 {
		list = nil
		for _, name := range names {
			s, err := scenario.Lookup(name)
			if err != nil {
				return t, err
			}
			list = append(list, s)
		}
	}
	for _, s := range list {
		t.Rows = append(t.Rows, []string{s.Name, s.About})
	}
	return t, nil
}

// Exploration is what a search of the schedules of a scenario came to.
type Exploration struct {
	Scenario, Policy string
	Verdict          string // exhausted, bounded or violated
	Bound            string // what was searched, in words
	Schedules        int
	Preemptions      int
	Seconds          float64
	Schedule         string // of the violation, for Replay
	Violation        string
	Command          string // that replays it outside of a notebook
}

// Explore runs a scenario under a policy in every order of its steps, those with the fewest
// preemptions first, and stops at the first violation. It ends after MaxSchedules or five seconds;
// Bound says if it did.
func Explore(name, spec string) (*Exploration, error) {
	s, p, err := lookup(name, spec)
	if err != nil {
		return nil, err
	}
	r, err := scenario.Run(s, p, scenario.Options{Config: func(c *explore.Config) {
		c.Schedules, c.Time = MaxSchedules, maxSearch
	}})
	if err != nil {
		return nil, err
	}
	return explorationOf(&r), nil
}

func explorationOf(r *scenario.Result) *Exploration {
	return &Exploration{Scenario: r.Scenario, Policy: r.Policy, Verdict: string(r.Verdict), Bound: r.Bound.String(), Schedules: r.Schedules,
		Preemptions: r.Preemptions, Seconds: r.Seconds, Schedule: r.Schedule, Violation: r.Violation.String(), Command: r.Replay}
}

// Kept reports that no schedule that was searched violates the rule; Bound says which were.
func (e *Exploration) Kept() bool { return e.Verdict != string(explore.Violated) }

// Table has a row for each thing known.
func (e *Exploration) Table() Table {
	t := Table{Caption: fmt.Sprintf("%s under %s", e.Scenario, e.Policy), Head: []string{"", ""}}
	t.Rows = [][]string{{"verdict", e.Verdict}, {"searched", e.Bound}}
	if !e.Kept() {
		t.Rows = append(t.Rows, []string{"schedule", cmp.Or(e.Schedule, "'', one task after the other")}, []string{"outside", e.Command})
		head := "violation"
		for _, line := range strings.Split(e.Violation, "\n") {
			t.Rows, head = append(t.Rows, []string{head, line}), ""
		}
	}
	return t
}

// Matrix explores each scenario under each policy and says in a word what came of it: kept, when
// every schedule was searched; kept<=N, when those with N preemptions were; kept?N, when N
// schedules were; or broken.
func Matrix(scenarios, policies []string) (Table, error) {
	t := Table{Caption: "Policies and scenarios", Head: append([]string{"scenario"}, policies...)}
	for _, name := range scenarios {
		row := []string{name}
		for _, spec := range policies {
			s, p, err := lookup(name, spec)
			if err != nil {
				return t, err
			}
			r, err := scenario.Run(s, p, scenario.Options{Config: func(c *explore.Config) {
				c.Schedules, c.Time = MaxSchedules, maxSearch
			}})
			if err != nil {
				return t, err
			}
			row = append(row, r.Cell())
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

// Timeline is one execution, step by step. It shows itself as a page in a frame: click a step, or
// go with the arrow keys.
type Timeline struct {
	tr *scenario.Trace
}

// Replay runs one schedule of a scenario under a policy and records every step. The empty schedule
// has no preemptions.
func Replay(name, schedule, spec string) (Timeline, error) {
	s, p, err := lookup(name, spec)
	if err != nil {
		return Timeline{}, err
	}
	tr, err := scenario.Replay(s, p, schedule, false)
	if err != nil {
		return Timeline{}, err
	}
	if tr.Kind == explore.KindMisfit {
		return Timeline{}, fmt.Errorf("replay %s %s: %s", name, schedule, tr.Violation)
	}
	return Timeline{tr}, nil
}

// Kept reports that the schedule violates nothing.
func (l Timeline) Kept() bool { return l.tr.Kind == explore.OK }

// Violation is what the oracle says, empty when all was kept.
func (l Timeline) Violation() string { return l.tr.Violation.String() }

// Steps is their number.
func (l Timeline) Steps() int { return len(l.tr.Steps) }

// Text is the timeline as a table of columns, as btrlab replay prints it.
func (l Timeline) Text() string {
	var b strings.Builder
	_ = timeline.WriteText(&b, l.tr, timeline.Layout{}) // a Builder takes everything
	return b.String()
}

// HTML is a frame with the page that btrlab replay --out writes.
func (l Timeline) HTML() string {
	var b strings.Builder
	if err := timeline.WriteHTML(&b, l.tr); err != nil {
		return "<pre>" + html.EscapeString(err.Error()) + "</pre>"
	}
	title := fmt.Sprintf("timeline of %s under %s, schedule '%s'", l.tr.Scenario, l.tr.Policy, l.tr.Schedule)
	return frame(title, b.String(), timelineHeight(b.String()))
}

var pictureSize = regexp.MustCompile(`viewBox="0 0 (\d+) (\d+)"`)

// timelineHeight is how high, in pixels, the page of a timeline is in a frame as wide as a
// notebook: what is above the steps and below them, and the pictures of the steps, made smaller
// where they are wider. A very long one scrolls.
func timelineHeight(page string) int {
	const width, around, most = 1030, 350, 3000 // pixels
	sum := around
	for _, m := range pictureSize.FindAllStringSubmatch(page, -1) {
		w, _ := strconv.Atoi(m[1])
		h, _ := strconv.Atoi(m[2])
		sum += h * width / max(w, width)
	}
	return min(sum, most)
}

// frame is a page in a frame of so many pixels.
func frame(title, page string, height int) string {
	return fmt.Sprintf(`<iframe title="%s" sandbox="allow-scripts" style="width:100%%;height:%dpx;border:1px solid #777" srcdoc="%s"></iframe>`,
		html.EscapeString(title), height, html.EscapeString(page))
}

// SimpleRender is what the notebook kernel asks for.
func (l Timeline) SimpleRender() map[string]interface{} {
	return map[string]interface{}{"text/html": l.HTML(), "text/plain": l.Text()}
}

// Window is what a single preemption does, by the step at which it comes.
type Window struct {
	Scenario, Policy string
	task             int
	steps            []windowStep // ascending
}

type windowStep struct {
	step   int
	broken bool
	where  string // the step that the preemption puts off
}

// Preempt replays a scenario once for every step at which another task can be given the CPU: the
// schedules "step:task". task goes on from there for as long as it can.
func Preempt(name, spec string, task int) (*Window, error) {
	base, err := Replay(name, "", spec)
	if err != nil {
		return nil, err
	}
	if task < 0 || task >= base.tr.Own {
		return nil, fmt.Errorf("task %d, want 0 to %d", task, base.tr.Own-1)
	}
	w := &Window{Scenario: name, Policy: spec, task: task}
	for i, s := range base.tr.Steps {
		if s.Kind == "start" || s.Task == task || s.Task >= base.tr.Own || s.Enabled&(1<<task) == 0 {
			continue
		}
		l, err := Replay(name, fmt.Sprintf("%d:%d", i, task), spec)
		if err != nil {
			return nil, err
		}
		w.steps = append(w.steps, windowStep{i, !l.Kept(), s.Label()})
	}
	return w, nil
}

// Broken counts the steps at which the preemption violates the rule.
func (w *Window) Broken() int {
	n := 0
	for _, s := range w.steps {
		if s.broken {
			n++
		}
	}
	return n
}

// Schedules are those replayed.
func (w *Window) Schedules() []string {
	var out []string
	for _, s := range w.steps {
		out = append(out, fmt.Sprintf("%d:%d", s.step, w.task))
	}
	return out
}

// Table has a row for each step.
func (w *Window) Table() Table {
	t := Table{Caption: fmt.Sprintf("%s under %s: one preemption, before the step", w.Scenario, w.Policy), Head: []string{"step", "put off", "verdict"}}
	for _, s := range w.steps {
		t.Rows = append(t.Rows, []string{fmt.Sprint(s.step), s.where, map[bool]string{false: "kept", true: "violated"}[s.broken]})
	}
	return t
}

// MaxVirtual bounds the virtual seconds of Reproduce.
const MaxVirtual = 5.0

// Reproduce runs seed 002 in virtual time, with the calibration of btrlab reproduce, on a file of
// 512 MiB instead of 16 GiB and for a short time after one of the same length that does not count.
// Two virtual seconds take about two real ones.
func Reproduce(seconds float64) (Table, error) {
	if seconds <= 0 || seconds > MaxVirtual {
		return Table{}, fmt.Errorf("%g virtual seconds, want more than 0 and at most %g", seconds, MaxVirtual)
	}
	seed := seeds.Get(seeds.Overwrite)
	r, err := reproduce.Run(seed, reproduce.Options{Calibration: seed.Study.Calibration, Seconds: seconds, Warm: seconds, Size: 512 << 20, Published: true})
	if err != nil {
		return Table{}, err
	}
	t := Table{Caption: fmt.Sprintf("seed 002: published (180 s, 16 GiB) and simulated (%g virtual s, 0.5 GiB)", r.Seconds),
		Head: []string{"", "published", "simulated", "error"}}
	line := func(name string, show func(float64) string, pub, sim float64) {
		t.Rows = append(t.Rows, []string{name, show(pub), show(sim), fmt.Sprintf("%+.0f%%", 100*(sim/pub-1))})
	}
	for _, row := range r.Rows {
		name := row.Name + " (" + row.Role + "): "
		line(name+"iops", draw.Count, row.Published.IOPS, row.Simulated.IOPS)
		for _, p := range []float64{50, 99} {
			line(fmt.Sprintf("%sclat p%g", name, p), draw.Nanos, 1000*row.Published.Percentile(p), 1000*row.Simulated.Percentile(p))
		}
	}
	line("iops, unlocked by lock", func(x float64) string { return fmt.Sprintf("%.2f", x) }, r.Ratio.Published, r.Ratio.Simulated)
	return t, nil
}
