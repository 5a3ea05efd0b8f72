package judges

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/sched/explore"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/testing/need"
	"btrlab/labs/kit"
	template "btrlab/labs/own"
)

// TestOwn: the template shows a race, with the lines of both sides; with the lock taken on both
// sides it is exhausted; a schedule is replayed.
func TestOwn(t *testing.T) {
	r := Judge(Program{template.Program}, &sandbox.Run{})[0]
	if r.Pass || !r.Violated || r.Kind != explore.KindRace || !strings.Contains(r.Trace, "careless") {
		t.Errorf("the template: %+v", r)
	}
	lost := func(locked bool) func(w *kit.World) {
		return func(w *kit.World) {
			var x kit.Word
			var m kit.Mutex
			m.Init()
			for _, name := range []string{"a", "b"} {
				w.Go(name, func(t *kit.Task) {
					if locked {
						m.Lock(t)
						defer m.Unlock(t)
					}
					x.Store(t, x.Load(t)+1)
				})
			}
			w.Check(func() error {
				if x.Value() != 2 {
					return fmt.Errorf("x is %d, want 2", x.Value())
				}
				return nil
			})
		}
	}
	if r := Judge(Program{lost(true)}, &sandbox.Run{})[0]; !r.Pass || !strings.HasPrefix(r.Result, "exhausted: ") {
		t.Errorf("with a lock: %+v", r)
	}
	r = Judge(Program{lost(false)}, &sandbox.Run{})[0]
	if r.Pass || r.Schedule != "3:1" || !strings.Contains(r.Result, "x is 1, want 2") || !strings.Contains(r.Trace, ">3") {
		t.Errorf("without: %+v", r)
	}
	if r := replayed(Program{lost(false)}, ownName, "2:1")[0]; !r.Pass || r.Violated {
		t.Errorf("a schedule that keeps the rule: %+v", r)
	}
	if r := replayed(Program{lost(false)}, ownName, "99:1")[0]; r.Pass || !r.Misfit {
		t.Errorf("a schedule that does not fit: %+v", r)
	}
}

// TestCheckOwn: a program of one's own has the world of package kit and pointers, and no plain
// variable that tasks change.
func TestCheckOwn(t *testing.T) {
	if got := checkText(t, template.Template, Program{}.About().Code.Rules); got != "" {
		t.Errorf("the template: %s", got)
	}
	for _, tt := range []struct{ name, body, want string }{
		{"locals", "w.Go(\"a\", func(t *kit.Task) { n := 1; n++; func() { n = 2 }(); for i := range 3 { n += i } })", ""},
		{"pointers", "p := &m; w.Go(\"a\", func(t *kit.Task) { q := *p; q.Lock(t) })", ""},
		{"counter", "n := 0; w.Go(\"a\", func(t *kit.Task) { n++ })", "x.go:3: changes n, a plain variable from outside"},
		{"field", "var s struct{ n int }; w.Go(\"a\", func(t *kit.Task) { s.n = 1 })", "x.go:3: changes s, a plain variable"},
		{"element", "l := make([]int, 2); w.Go(\"a\", func(t *kit.Task) { l[0] += 1 })", "x.go:3: changes l, a plain variable"},
		{"helper", "n := 0; f := func() { n = 1 }; w.Go(\"a\", func(t *kit.Task) { f() })", "x.go:3: changes n, a plain variable"},
		{"second literal", "w.Go(\"a\", func(t *kit.Task) {}); n := 0; w.Go(\"b\", func(t *kit.Task) { n = 1 })", "x.go:3: changes n, a plain variable"},
		{"grader's side", "kit.Explore(nil)", "x.go:3: uses kit.Explore, want only World, Task"},
		{"go", "go f()", "x.go:3: has a go statement"},
	} {
		src := "package own\nimport \"btrlab/labs/kit\"\nfunc Program(w *kit.World) { var m kit.Mutex; m.Init(); " + tt.body + " }\n"
		got := checkText(t, src, Program{}.About().Code.Rules)
		if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: have %q want %q", tt.name, got, tt.want)
		}
	}
}

// TestExploreOwn builds two files and runs one, as btrlab practice --own does: what is refused is
// one line that names the file's line.
func TestExploreOwn(t *testing.T) {
	need.Long(t)
	if testing.Short() {
		t.Skip("builds two programs")
	}
	r, dir := root(t), t.TempDir()
	program := func(body string) string {
		put(t, dir, "mine.go", "package own\n\nimport \"btrlab/labs/kit\"\n\nfunc Program(w *kit.World) {\n"+body+"\n}\n")
		return filepath.Join(dir, "mine.go")
	}
	put(t, dir, "race.go", template.Template)
	x, err := ExploreOwn(t.Context(), r, filepath.Join(dir, "race.go"), sandbox.Options{})
	if err != nil || x.Pass || x.Kind != explore.KindRace || !strings.Contains(x.Trace, "race.go:24") {
		t.Errorf("the template: %+v, %v", x, err)
	}
	for body, want := range map[string]string{
		"\tw.Run()":   "mine.go:6:4: w.Run undefined",
		"\tselect {}": "mine.go:6: has a select",
		"\t{":         "mine.go:7:3: expected '}', found 'EOF'",
	} {
		_, err := ExploreOwn(t.Context(), r, program(body), sandbox.Options{})
		var refused *RefusedError
		if !errors.As(err, &refused) || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: have %v want %s", body, err, want)
		}
	}
	put(t, dir, "text.txt", "x")
	if _, err := ExploreOwn(t.Context(), r, filepath.Join(dir, "text.txt"), sandbox.Options{}); err == nil || err.Error() != "text.txt: want a Go file" {
		t.Errorf("have %v", err)
	}
	if _, err := ExploreOwn(t.Context(), r, filepath.Join(dir, "none.go"), sandbox.Options{}); err == nil {
		t.Error("a file that is not there")
	}
}

// TestOwnSpurious: a waiter that asks with if and not in a loop was exhausted in six schedules,
// because no wake-up came without a Broadcast. Conditions of the field do wake so; it is found, by
// a schedule that says so and is replayed, and a loop keeps the rule in these schedules, too.
func TestOwnSpurious(t *testing.T) {
	waits := func(loop bool) func(w *kit.World) {
		return func(w *kit.World) {
			var m kit.Mutex
			var c kit.Cond
			var ready, seen kit.Var[bool]
			m.Init()
			c.Init()
			w.Go("waiter", func(t *kit.Task) {
				m.Lock(t)
				for !ready.Load(t) {
					if c.Wait(t, &m); !loop {
						break
					}
				}
				seen.Store(t, ready.Load(t))
				m.Unlock(t)
			})
			w.Go("sender", func(t *kit.Task) {
				m.Lock(t)
				ready.Store(t, true)
				c.Broadcast(t)
				m.Unlock(t)
			})
			w.Check(func() error {
				if !seen.Value() {
					return errors.New("went on before it was ready")
				}
				return nil
			})
		}
	}
	r := Judge(Program{waits(false)}, &sandbox.Run{})[0]
	if r.Pass || !strings.HasPrefix(r.Schedule, explore.SpuriousPrefix) || !strings.Contains(r.Result, "went on before it was ready") ||
		!strings.Contains(r.Trace, "spurious wake-up") {
		t.Errorf("with if: %+v", r)
	}
	if again := replayed(Program{waits(false)}, ownName, r.Schedule)[0]; !again.Violated || again.Result != r.Result {
		t.Errorf("%s again: %+v", r.Schedule, again)
	}
	if x := replayed(Program{waits(false)}, ownName, strings.TrimPrefix(r.Schedule, explore.SpuriousPrefix))[0]; !x.Misfit {
		t.Errorf("without its mark: %+v", x)
	}
	r = Judge(Program{waits(true)}, &sandbox.Run{})[0]
	if !r.Pass || !r.Exhausted || !strings.Contains(r.Result, "; with a spurious wake-up of each task that waits in a Cond: exhausted: ") {
		t.Errorf("with for: %+v", r)
	}
	for loop, want := range map[bool]string{true: "proved: exhausted after", false: "broken by schedule \"spurious,"} {
		x := kit.Explore(waits(loop))
		if !strings.HasPrefix(x.String(), want) || loop && (!x.Proved || x.Spurious == 0) {
			t.Errorf("kit.Explore, a loop %v: %v want %s", loop, x, want)
		}
		if !loop && !strings.Contains(kit.Draw(waits(loop), x.Schedule), "went on before it was ready") {
			t.Errorf("kit.Draw of %s: %s", x.Schedule, kit.Draw(waits(loop), x.Schedule))
		}
	}
}
