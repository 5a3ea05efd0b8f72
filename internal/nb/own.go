package nb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"btrlab/internal/measure/experiment"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/own"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
)

// Own is a policy of the user's own, built into a copy of btrlab, which runs what its methods and
// functions ask.
type Own struct {
	name, dir, bin string
	remove         func()
}

// Template is the Go of a policy that does what a preset does: locked, unlocked, unlocked-drain,
// prewait, range-lock or modern. It is where one's own begins.
func Template(preset string) (string, error) {
	code, err := own.Template("mine", preset)
	return string(code), err
}

// Replace puts functions into the Go of a policy, each in the place of the one or the method that
// has its name, or at the end.
func Replace(code, functions string) (string, error) {
	snippet := "package p\n" + functions
	fresh, err := parser.ParseFile(token.NewFileSet(), "", snippet, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	for _, d := range fresh.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			return "", errors.New("want functions alone")
		}
		text := snippet[f.Pos()-fresh.FileStart : f.End()-fresh.FileStart]
		old, err := parser.ParseFile(token.NewFileSet(), "", code, parser.SkipObjectResolution)
		if err != nil {
			return "", err
		}
		i := slices.IndexFunc(old.Decls, func(d ast.Decl) bool {
			g, ok := d.(*ast.FuncDecl)
			return ok && g.Name.Name == f.Name.Name && (g.Recv == nil) == (f.Recv == nil)
		})
		if i < 0 {
			code += "\n" + text + "\n"
			continue
		}
		from, to := old.Decls[i].Pos()-old.FileStart, old.Decls[i].End()-old.FileStart
		code = code[:from] + text + code[to:]
	}
	return code, nil
}

// OwnPolicy builds the policy whose Go is code, as Template's, and gives it the name. It takes some
// seconds and needs the go tool and a clone.
func OwnPolicy(name, code string) (*Own, error) { return ownOf(name, "", code) }

// OwnRangeLock builds preset range-lock with the range lock of lab 05 or 13 in it; code is its Go.
func OwnRangeLock(name, code string) (*Own, error) {
	if !strings.Contains(code, "\nfunc New() ") {
		return nil, errors.New("want the Go of a range lock, with func New()")
	}
	return ownOf(name, "range-lock", strings.Replace(code, "\nfunc New() ", "\nfunc NewRangeLock() ", 1))
}

// ownOf is in a folder of its own, with the toggles if there are any.
func ownOf(name, toggles, code string) (*Own, error) {
	if name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return nil, fmt.Errorf("bad name, have %q want the name of a folder", name)
	}
	tmp, err := os.MkdirTemp("", "btrlab-nb-")
	if err != nil {
		return nil, err
	}
	o, err := ownIn(filepath.Join(tmp, name), toggles, code)
	if err != nil {
		os.RemoveAll(tmp)
		return nil, err
	}
	bin := o.remove
	o.remove = func() { bin(); os.RemoveAll(tmp) }
	return o, nil
}

func ownIn(dir, toggles, code string) (*Own, error) {
	if err := own.Make(dir, "locked", toggles); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "policy.go"), []byte(code), 0o644); err != nil {
		return nil, err
	}
	return OwnDir(dir)
}

// OwnDir builds the policy of a folder that has Go, as btrlab policy new makes it.
func OwnDir(dir string) (*Own, error) {
	f, err := own.Read(dir)
	if err != nil {
		return nil, err
	}
	if !f.Compiled() {
		return nil, fmt.Errorf("%s has no Go: its name for toggles is a policy wherever one is asked for", dir)
	}
	root, err := sandbox.Root(".")
	if err != nil {
		return nil, err
	}
	bin, remove, err := own.Build(context.Background(), root, []*own.Folder{f})
	if err != nil {
		remove()
		return nil, err
	}
	return &Own{f.Name, dir, bin, remove}, nil
}

// Close deletes the program.
func (o *Own) Close() { o.remove() }

// ownLimit is the longest that a verb of the program may run.
const ownLimit = 5 * time.Minute

// run runs a verb of the program, and gives what it prints. Exit code 1 is an answer: something is
// broken.
func (o *Own) run(args ...string) ([]byte, error) {
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), ownLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.bin, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s did not end in %v: is there a loop that does not end and does not wait?", args[0], ownLimit)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && (exit.ExitCode() != 1 || out.Len() == 0) {
		return nil, errors.New(strings.TrimSpace(strings.TrimPrefix(errs.String(), "btrlab: ")))
	}
	if err != nil && exit == nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// ExploreOwn is Explore under the policy.
func ExploreOwn(o *Own, name string) (*Exploration, error) {
	out, err := o.run("explore", name, "--policy", o.name, "--policy-dir", o.dir, "--json", "--schedules", fmt.Sprint(MaxSchedules), "--time", maxSearch.String())
	if err != nil {
		return nil, err
	}
	var s scenario.Result
	err = json.Unmarshal(out, &s)
	return explorationOf(&s), err
}

// Page is a page in a frame.
type Page struct {
	title, text string
	height      int // px
}

// ReplayOwn is Replay under the policy: the steps have the lines of its Go.
func ReplayOwn(o *Own, scenario, schedule string) (Page, error) {
	file := filepath.Join(filepath.Dir(o.bin), "replay.html")
	defer os.Remove(file)
	if _, err := o.run("replay", scenario, schedule, "--policy", o.name, "--policy-dir", o.dir, "--out", file); err != nil {
		return Page{}, err
	}
	text, err := os.ReadFile(file)
	return Page{fmt.Sprintf("timeline of %s under %s, schedule '%s'", scenario, o.name, schedule), string(text), timelineHeight(string(text))}, err
}

// SimpleRender is what the notebook kernel asks for.
func (p Page) SimpleRender() map[string]interface{} {
	return map[string]interface{}{"text/html": frame(p.title, p.text, p.height), "text/plain": p.title}
}

// Tested is what btrlab policy test says of a policy.
type Tested struct {
	Policy   string
	Explored []scenario.Result
	Compared []*experiment.Result
	Baseline []string `json:"baseline_breaks"` // the scenarios that locked breaks
}

// TryOwn explores the policy in every scenario, with at most so many schedules of each, and
// compares it with every preset in runs of so many simulated seconds. It cuts no power.
func TryOwn(o *Own, schedules int, seconds float64) (*Tested, error) {
	if schedules < 1 || schedules > MaxSchedules || !(seconds > 0) || seconds > MaxVirtual {
		return nil, fmt.Errorf("%d schedules and %g s, want 1 to %d and at most %g", schedules, seconds, MaxSchedules, MaxVirtual)
	}
	page := filepath.Join(filepath.Dir(o.bin), "test.html")
	out, err := o.run("policy", "test", o.dir, "--json", "--bounded", "0", "--schedules", fmt.Sprint(schedules), "--runtime-seconds", fmt.Sprint(seconds), "--out", page)
	if err != nil {
		return nil, err
	}
	r := &Tested{}
	return r, json.Unmarshal(out, r)
}

// Kept reports that the policy breaks no scenario that locked keeps.
func (r *Tested) Kept() bool { return len(r.broken(false)) == 0 }

// broken are the searches that found a violation: those that locked breaks too, or the others.
func (r *Tested) broken(too bool) (list []scenario.Result) {
	locked := map[string]bool{}
	for _, name := range r.Baseline {
		locked[name] = true
	}
	for _, s := range r.Explored {
		if s.Verdict == explore.Violated && locked[s.Scenario] == too {
			list = append(list, s)
		}
	}
	return list
}

// Table counts the scenarios by what came of them.
func (r *Tested) Table() Table {
	count, schedules := map[explore.Verdict]int{}, 0
	for _, s := range r.Explored {
		count[s.Verdict]++
		schedules += s.Schedules
	}
	return Table{Caption: fmt.Sprintf("%s: %d scenarios, %d schedules", r.Policy, len(r.Explored), schedules), Head: []string{"what came of it", "scenarios"}, Rows: [][]string{
		{"kept in every schedule", fmt.Sprint(count[explore.Exhausted])},
		{"kept as far as the search went", fmt.Sprint(count[explore.Bounded])},
		{"broken, and locked keeps it", fmt.Sprint(len(r.broken(false)))},
		{"broken, as locked breaks it", fmt.Sprint(len(r.broken(true)))},
	}}
}

// Broken has the scenarios that the policy breaks and locked keeps, each with the schedule for
// ReplayOwn.
func (r *Tested) Broken() Table {
	t := Table{Caption: r.Policy + " breaks", Head: []string{"scenario", "schedule", "what is wrong"}}
	for _, s := range r.broken(false) {
		what, _, _ := strings.Cut(s.Violation.String(), "\n")
		t.Rows = append(t.Rows, []string{s.Scenario, s.Schedule, what})
	}
	return t
}

// Ratio is how many times the iops of locked a policy did in seed 002's job in virtual time; 0 when
// it was not compared.
func (r *Tested) Ratio(policy string) float64 {
	for _, c := range r.Compared {
		for _, row := range c.Rows {
			if row.Policy == policy {
				return row.Ratio
			}
		}
	}
	return 0
}

// Ratios draws them.
func (r *Tested) Ratios() (Figure, error) {
	var list []ratio
	var names []string
	for _, c := range r.Compared {
		for _, row := range c.Rows {
			names = append(names, row.Policy)
			list = append(list, ratio{row.Policy, row.Ratio, row.RatioMin, row.RatioMax})
		}
	}
	if len(list) == 0 {
		return Figure{}, errors.New("nothing was compared")
	}
	return ratioBars("iops of seed 002's job in virtual time, relative to locked", "Ratios of iops:", list, names)
}

// Waits has the share of the writers' time that each wait took under the policy and under locked.
func (r *Tested) Waits() Table {
	t := Table{Caption: "percent of the writers' time", Head: []string{"wait"}}
	rows := map[string][]string{}
	var order []string
	for _, c := range r.Compared {
		for _, row := range c.Rows {
			if row.Policy != "locked" && row.Policy != r.Policy {
				continue
			}
			t.Head = append(t.Head, row.Policy)
			for name := range row.Waits {
				if rows[name] == nil {
					order = append(order, name)
					rows[name] = []string{name}
				}
			}
			for _, name := range order {
				for len(rows[name]) < len(t.Head)-1 {
					rows[name] = append(rows[name], "0.0")
				}
				rows[name] = append(rows[name], fmt.Sprintf("%.1f", 100*row.Waits[name]))
			}
		}
	}
	slices.Sort(order)
	for _, name := range order {
		t.Rows = append(t.Rows, rows[name])
	}
	return t
}
