package reproducer

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/judge/park"
	"btrlab/internal/policy"
	"btrlab/internal/study/scenario"
)

// subject is a schedule that no kernel was led through.
func subject(t *testing.T, name, pol, schedule string) *Subject {
	t.Helper()
	s, err := scenario.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return &Subject{Title: s.About, Scenario: s, Policy: policy.MustParse(pol),
		Led: &park.Replayed{Scenario: name, Policy: pol, Schedule: schedule, Release: "6.1.0-x", Linux: park.Ending{Errors: []string{}}}}
}

func written(t *testing.T, x *Subject) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "folder")
	if err := Write(dir, x); err != nil {
		t.Fatal(err)
	}
	return dir
}

// filled is one file of the folder.
func filled(t *testing.T, x *Subject, name string) string {
	t.Helper()
	p, err := newPage(x)
	if err != nil {
		t.Fatal(err)
	}
	text, err := p.fill(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The folder of an exhibit is whole, and its disk is the scenario's. What needs a compiler or
// Python is left out, loudly, where there is none.
func TestFolder(t *testing.T) {
	x := subject(t, "nowait-stable", "nowait-6.1+NOWAIT_TRY_ORDERED", "8:1")
	x.Title, x.Story, x.Rule = "the title", "the story", "the rule"
	dir := written(t, x)
	if text := read(t, dir, "README"); !strings.HasPrefix(text, "the title\n") || !strings.Contains(text, "'8:1'") || !strings.Contains(text, "the story\n") {
		t.Errorf("README:\n%s", text)
	}
	if st, err := os.Stat(filepath.Join(dir, "run.sh")); err != nil || st.Mode()&0o111 == 0 {
		t.Errorf("run.sh: %v, %v", st, err)
	}
	sameDisk(t, dir, x.Scenario)
	for _, name := range []string{"park.py", "modules.py"} {
		tool(t, dir, "python3", "-m", "py_compile", name)
	}
	tool(t, dir, "sh", "-n", "run.sh")
}

// The program of each exhibit is C that a compiler has nothing to say about.
func TestCompiles(t *testing.T) {
	for i := range park.Exhibits {
		e := &park.Exhibits[i]
		m := e.Museum()
		dir := t.TempDir()
		text := filled(t, subject(t, m.Scenario, m.Broken, e.Schedule), "repro.c")
		if err := os.WriteFile(filepath.Join(dir, "repro.c"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		tool(t, dir, "gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "repro.c")
	}
}

// tool runs a program in the folder, if this machine has it: it must succeed and say nothing.
func tool(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Logf("LEFT OUT: no %s to judge %s", name, args)
		return
	}
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%s %s: %v\n%s", name, args, err, out)
	}
}

func sameDisk(t *testing.T, dir string, s *scenario.Scenario) {
	t.Helper()
	raw := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(raw, nil, 0o644), park.Prepare(raw, s)); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(raw)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, "disk.img.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, _ := f.Stat()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	have, err := io.ReadAll(r)
	if err != nil || string(have) != string(want) || st.Size() > 4<<20 {
		t.Errorf("the disk has %d bytes, packed %d, %v, want those of %d", len(have), st.Size(), err, len(want))
	}
}

// Each scenario whose tasks Linux can be led through has a program in C, whatever its calls are;
// the others have none, and one line says so.
func TestEveryScenario(t *testing.T) {
	have, none := 0, 0
	for _, s := range scenario.All() {
		x := subject(t, s.Name, "modern", "")
		dir := filepath.Join(t.TempDir(), "folder")
		if err := Check(dir, s); err != nil {
			if !errors.Is(err, park.ErrNoCall) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", s.Name, err)
			}
			none++
			continue
		}
		p, err := newPage(x)
		if errors.Is(err, park.ErrNoEnd) {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		have++
		for _, name := range []string{"README", "repro.c", "park.py"} {
			text, err := p.fill(name)
			if err != nil || strings.Contains(string(text), "[[.") {
				t.Errorf("%s: %s: %v", s.Name, name, err)
			}
		}
	}
	if have < 40 || none == 0 {
		t.Errorf("%d scenarios have a reproducer and %d have none", have, none)
	}
}

// The steps are the plan's, each place with the names that it has in other kernels.
func TestLead(t *testing.T) {
	for _, c := range []struct {
		scenario, policy, schedule string
		want                       []string
	}{
		{"nowait-stable", "nowait-6.1+NOWAIT_TRY_ORDERED", "8:1", []string{
			`(0, ["generic_write_checks"], False,` + "\n     \"stands before the step with which it breaks\"),",
			`(1, ["extent_write_cache_pages btrfs_writepages", "find_lock_delalloc_range"], False,`,
			`VIOLATION = "sleeps"`, `VICTIMS = [(0, 0)]`, `"btrfs_start_transaction"`, `TASKS = ["ring", "writeback"]`}},
		{"direct-mapped", "modern!DIO_NOFAULT", "", []string{`VIOLATION = "deadlock"`, `SLEEPERS = []`}},
		{"direct-full", "modern+WRONG_DIRECT_NEEDS_SPACE", "", []string{`VIOLATION = "error"`, `ERRORS = ["ENOSPC"`, `SIZE = None`}},
		{"truncate-race", "unlocked", "11:1", []string{`VIOLATION = "end"`, `BYTES = [(0, `}},
		{"truncate-race", "linux-6.1", "13:1", []string{`VIOLATION = ""`, `], True,`, `ERRORS = ["", ""]`}},
	} {
		text := filled(t, subject(t, c.scenario, c.policy, c.schedule), "park.py")
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s '%s': park.py has no %s:\n%s", c.scenario, c.schedule, want, text[:3000])
			}
		}
	}
}

// The calls of the program are those of the scenario.
func TestSource(t *testing.T) {
	for _, c := range []struct {
		scenario, policy string
		want             []string
	}{
		{"nowait-stable", "modern", []string{"done(1, write_at(file, source_1, 4096, 0, RWF_NOWAIT));", "sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE)", "memset(source_1, 1, sizeof source_1)"}},
		{"direct-mapped", "modern", []string{"char *source_1 = mapped(file, ", "file_direct = must(open(FILE_NAME, O_RDWR | O_DIRECT)"}},
		{"nowait-privs", "modern", []string{`must(fsetxattr(file, "security.capability",`}},
		{"truncate-race", "modern", []string{"ftruncate(file, "}},
	} {
		text := filled(t, subject(t, c.scenario, c.policy, ""), "repro.c")
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: repro.c has no %s", c.scenario, want)
			}
		}
	}
}

// A folder with something in it is left alone, and a scenario that Linux is not led through has no
// reproducer: one line each.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, subject(t, "truncate-race", "modern", "")); !errors.Is(err, ErrFolder) || strings.Contains(err.Error(), "\n") {
		t.Errorf("a folder with a file: %v", err)
	}
	if err := Write(filepath.Join(dir, "new"), subject(t, "ring-short", "modern", "")); !errors.Is(err, park.ErrNoCall) {
		t.Errorf("a ring: %v", err)
	}
	if list, _ := os.ReadDir(dir); len(list) != 1 {
		t.Errorf("%d entries are there, want 1", len(list))
	}
}

// run.sh says what is wrong in one line, before anything is booted.
func TestUsage(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("LEFT OUT: no sh")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "run.sh"), []byte(filled(t, subject(t, "truncate-race", "modern", ""), "run.sh")), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, want string
		args       []string
	}{
		{"", "bad arguments, have 0", nil},
		{"", "want KERNEL-FOLDER", []string{"a", "b", "c"}},
		{t.TempDir(), "no qemu-system-x86_64", []string{"kernel"}},
	} {
		cmd := exec.Command("/bin/sh", append([]string{"run.sh"}, c.args...)...)
		cmd.Dir = dir
		if c.path != "" {
			cmd.Env = []string{"PATH=" + c.path}
		}
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), c.want) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("run.sh %q: %v, %s", c.args, err, out)
		}
	}
}

// A title that ends a comment of C does not end that of the program.
func TestTitle(t *testing.T) {
	x := subject(t, "truncate-race", "modern", "")
	x.Title = "a */ b " + strings.Repeat("and more ", 20)
	if text := filled(t, x, "repro.c"); !strings.HasPrefix(text, "/*\n * a * / b and more") || strings.Index(text, "*/") < strings.Index(text, "/init of the guest") {
		t.Errorf("repro.c begins with %s", text[:400])
	}
}
