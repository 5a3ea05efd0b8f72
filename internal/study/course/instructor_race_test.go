package course

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/module"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/testing/need"
)

// racing is what TestRaced builds: every submission of labs 2 and 3, called by several goroutines
// at once, each with a file of its own. A panic is package kit's about a wrong order, and not the
// question here.
const racing = `package main

import (
	"sync"

	%q
	%q
	%q
%s)

type file struct {
	iopath.WriteSteps // what is not here is not called
	pos, n, isize     uint64
}

func (*file) Share(*sched.Task)                      {}
func (*file) Alone(*sched.Task)                      {}
func (*file) Unlock(*sched.Task)                     {}
func (*file) Count(*sched.Task)                      {}
func (*file) Uncount(*sched.Task)                    {}
func (f *file) Size(*sched.Task) uint64              { return f.isize }
func (f *file) Len() uint64                          { return f.n }
func (f *file) Place(*sched.Task) uint64             { return f.pos }
func (*file) Begin(*sched.Task) error                { return nil }
func (*file) Batch(*sched.Task, int) (bool, error)   { return false, nil }

type clock struct{ now int64 }

func (*clock) Due(i int) int64                         { return int64(10 * i) }
func (c *clock) Now(*sched.Task) int64                 { return c.now }
func (c *clock) SleepUntil(_ *sched.Task, at int64)    { c.now = max(c.now, at) }
func (c *clock) Write(_ *sched.Task, i int)            { c.now += int64(i %% 30) }

func together(f func(t *sched.Task, i int)) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 20 {
				func() {
					defer func() { recover() }()
					f(&sched.Task{}, i)
				}()
			}
		})
	}
	all.Wait()
}

func baseline(measure func(t *kit.Task, c *kit.Client) []int64, summarize func([][]int64, int64) kit.Summary, bin func(int64) int, value func(int) int64,
	predict func(alone, crowd kit.Profile, writers int) kit.Prediction, enough func(alone, crowd kit.Profile) int) {
	alone, crowd := kit.Profile{Writers: 1, Ops: 10, Elapsed: 1000}, kit.Profile{Writers: 20, Ops: 200, Elapsed: 2000, Waits: 200, Waited: 20_000}
	together(func(t *sched.Task, i int) {
		l := kit.RunClient(measure, t, &clock{}, 40, 5)
		summarize([][]int64{l, {5, 1, 7}}, 10_000)
		value(bin(int64(i * i * 1000)))
		predict(alone, crowd, i+1)
		enough(alone, crowd)
	})
}

func locking(can func(pos, n, isize uint64) bool, write func(t *kit.Task, w *kit.LockedWrite)) {
	together(func(t *sched.Task, i int) {
		can(uint64(i), 4, 16)
		kit.RunLocked(write, t, &file{pos: uint64(i) * 4096, n: 4096, isize: 40_960})
	})
}

func main() {
%s}
`

// TestRaced: the submissions of labs 2 and 3 that are graded have no data race when tasks run at
// once, right or wrong as they may be: they share nothing, since the check of the files refuses
// variables of a package. The two that it refuses for one do race, and the race detector says so:
// the grader, in which one task runs at a time, would see nothing.
func TestRaced(t *testing.T) {
	need.Long(t)
	if os.Getenv("BTRLAB_LABS") == "" {
		t.Skip("builds a program with the race detector: make labs")
	}
	r := root(t)
	grades := filepath.Join(r, "labs", "_grade")
	if err := os.MkdirAll(grades, 0o755); err != nil {
		t.Fatal(err)
	}
	work, err := os.MkdirTemp(grades, "race-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(work) })
	path := module.Path + "/labs/_grade/" + filepath.Base(work)
	var imports, calls strings.Builder
	refused := map[string]bool{} // by folder
	for _, x := range []struct {
		n    int
		call string
	}{{2, "\tbaseline(%[1]s.Measure, %[1]s.Summarize, %[1]s.Bin, %[1]s.Value, %[1]s.Predict, %[1]s.Enough)\n"}, {3, "\tlocking(%[1]s.CanUnlock, %[1]s.Write)\n"}} {
		l := lab(t, x.n)
		dirs, err := filepath.Glob(filepath.Join(l.Dir(r), "instructor", "_*", l.File))
		if err != nil {
			t.Fatal(err)
		}
		mutants, err := filepath.Glob(filepath.Join(l.Dir(r), "instructor", "_mutants", "*", l.File))
		if err != nil || len(dirs) == 0 || len(mutants) < 12 {
			t.Fatal(dirs, mutants, err)
		}
		for i, file := range slices.Concat([]string{filepath.Join(l.Dir(r), l.File)}, dirs, mutants) {
			name := fmt.Sprintf("s%d_%d_%s", x.n, i, strings.ReplaceAll(filepath.Base(filepath.Dir(file)), "-", "_"))
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(work, name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(work, name, l.File), b, 0o644); err != nil {
				t.Fatal(err)
			}
			code, err := sandbox.Check(t.Context(), root(t), []sandbox.File{{Path: file, Data: b}}, l.Code.Rules)
			if err != nil {
				t.Fatal(err)
			}
			bad := code.Bad
			refused[name] = len(bad) > 0
			if len(bad) > 0 && !strings.Contains(bad[0], "has a variable of the package") {
				t.Errorf("%s is refused for %q", name, bad)
			}
			fmt.Fprintf(&imports, "\t%s %q\n", name, path+"/"+name)
			fmt.Fprintf(&calls, x.call, name)
		}
	}
	main := fmt.Sprintf(racing, module.Path+"/internal/iopath", module.Path+"/internal/sched", sandbox.KitPath, imports.String(), calls.String())
	if err := os.WriteFile(filepath.Join(work, "main.go"), []byte(main), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-race", "-o", filepath.Join(work, "racing"), "./labs/_grade/"+filepath.Base(work))
	build.Dir = r
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), filepath.Join(work, "racing"))
	run.Env = append(os.Environ(), "GORACE=exitcode=0")
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	races := strings.Split(string(out), "WARNING: DATA RACE")[1:]
	for name, no := range refused {
		at := slices.IndexFunc(races, func(r string) bool { return strings.Contains(r, "/"+name+"/") })
		switch {
		case !no && at >= 0:
			t.Errorf("%s is graded and has a data race:\n%s", name, races[at])
		case no && at < 0:
			t.Errorf("%s is refused for a variable, and no race shows", name)
		}
	}
	if len(races) == 0 {
		t.Errorf("no race at all:\n%s", out)
	}
}
