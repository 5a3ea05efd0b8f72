package conform

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/testing/need"
)

// pairTrace parses lines of steps.
func pairTrace(t *testing.T, text string) (list []PairStep) {
	t.Helper()
	for line := range strings.Lines(text) {
		s, err := parsePairStep(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

// A step is read as it is written; one that is none of a pair is refused.
func TestPairSteps(t *testing.T) {
	for _, s := range []string{"t inode_lock file", "s inode_unlock_shared file", "e lock LOCKED [4k,8k)", "s unlock DIO_LOCKED [0,end)", "t ordered_extent_add REGULAR [4k,8k)",
		"t writeback_dirty_folio page 3"} {
		x, err := parsePairStep(s)
		if err != nil || x.String() != s {
			t.Errorf("%q is read as %q, %v", s, &x, err)
		}
	}
	for _, s := range []string{"", "t", "x inode_lock file", "t inode_lock dir", "t lock FINISHING_ORDERED [0,4k)", "t cow_block fs level 0"} {
		if x, err := parsePairStep(s); err == nil {
			t.Errorf("%q is read as %q", s, &x)
		}
	}
}

// Steps depend on each other through the inode's lock, or through bytes.
func TestPairDepends(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"t inode_lock file", "s inode_unlock file", true},
		{"t inode_lock file", "s lock LOCKED [0,end)", false},
		{"t lock LOCKED [0,4k)", "s lock LOCKED [4k,8k)", false},
		{"t lock LOCKED [0,8k)", "s lock LOCKED [4k,12k)", true},
		{"t writeback_dirty_folio page 1", "s unlock LOCKED [4k,8k)", true},
		{"t writeback_dirty_folio page 2", "s unlock LOCKED [4k,8k)", false},
	} {
		l := pairTrace(t, c.a+"\n"+c.b)
		if l[0].depends(&l[1]) != c.want || l[1].depends(&l[0]) != c.want {
			t.Errorf("%s and %s: depend %v, want %v", c.a, c.b, !c.want, c.want)
		}
	}
}

// A kernel tells that a task begins to take a lock, and tells it again after each wait. The task
// has it before its next step.
func TestLockLate(t *testing.T) {
	for _, c := range []struct{ name, told, want string }{
		{"a semaphore that another one has", `
			t inode_lock file
			s inode_lock file
			t lock LOCKED [0,4k)
			t unlock LOCKED [0,4k)
			t inode_unlock file
			s lock LOCKED [4k,8k)
			s unlock LOCKED [4k,8k)`, `
			t inode_lock file
			t lock LOCKED [0,4k)
			t unlock LOCKED [0,4k)
			t inode_unlock file
			s inode_lock file
			s lock LOCKED [4k,8k)
			s unlock LOCKED [4k,8k)`},
		{"a range of which a part is another's", `
			t lock LOCKED [8k,16k)
			s lock LOCKED [0,16k)
			s unlock LOCKED [0,8k)
			t unlock LOCKED [8k,16k)
			s lock LOCKED [0,16k)
			s unlock LOCKED [0,16k)`, `
			t lock LOCKED [8k,16k)
			t unlock LOCKED [8k,16k)
			s lock LOCKED [0,16k)
			s unlock LOCKED [0,16k)`},
		{"a range that is locked for a moment", `
			t lock LOCKED [0,16k)
			t unlock LOCKED [0,16k)
			t lock LOCKED [0,4k)`, `
			t lock LOCKED [0,16k)
			t unlock LOCKED [0,16k)
			t lock LOCKED [0,4k)`},
	} {
		var events []Event
		for _, s := range pairTrace(t, strings.TrimSpace(c.told)) {
			e := Event{Lane: s.Lane, Name: s.Name, About: s.What}
			switch s.Name {
			case "lock":
				e.Name, e.Group = "set_extent_bit", Bits
			case "unlock":
				e.Name, e.Group = "clear_extent_bit", Bits
			}
			events = append(events, e)
		}
		var have strings.Builder
		for _, s := range stepsOf(lockLate(events)) {
			fmt.Fprintln(&have, &s)
		}
		if want := strings.ReplaceAll(strings.TrimSpace(c.want), "\t", "") + "\n"; have.String() != want {
			t.Errorf("%s:\n%s\nwant:\n%s", c.name, have.String(), want)
		}
	}
}

// A changed trace differs from the one it was made of, and a lock that is taken too early comes
// before the step that lets it go.
func TestMutate(t *testing.T) {
	trace := pairTrace(t, strings.ReplaceAll(strings.TrimSpace(`
		t inode_lock file
		t lock LOCKED [0,8k)
		t unlock LOCKED [0,8k)
		t inode_unlock file
		s inode_lock file
		s lock LOCKED [4k,12k)
		s unlock LOCKED [4k,12k)
		s inode_unlock file`), "\t", ""))
	kinds := map[string]int{}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 400 {
		changed, how := mutate(trace, rng)
		if changed == nil {
			continue
		}
		kind, _, _ := strings.Cut(how, ":")
		kinds[kind]++
		if fmt.Sprint(changed) == fmt.Sprint(trace) {
			t.Errorf("%s: nothing has changed", how)
		}
		if kind == "a lock taken too early" && how != "a lock taken too early: s inode_lock file" {
			t.Errorf("%s: a step of the task comes before", how)
		}
	}
	if len(kinds) != 4 {
		t.Errorf("kinds of changes %v, want 4", kinds)
	}
}

// What is recorded is written as it was read.
func TestPairsRoundTrip(t *testing.T) {
	r, err := OpenPairs()
	if err != nil {
		t.Fatal(err)
	}
	var once, twice bytes.Buffer
	if err := r.Write(&once); err != nil {
		t.Fatal(err)
	}
	again, err := ReadPairs(bytes.NewReader(once.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Write(&twice); err != nil || twice.String() != once.String() || len(again.Runs) != len(Pairs) {
		t.Errorf("%v: %d pairs, want %d, and the same text", err, len(again.Runs), len(Pairs))
	}
	if _, err := ReadPairs(strings.NewReader("== write-write\n")); err == nil {
		t.Error("a recording without a version is read")
	}
	if _, err := ReadPairs(strings.NewReader("# Linux 6.18\n== write-write\n-- first\nt frob\n")); err == nil {
		t.Error("a recording with an unknown step is read")
	}
}

// Of each recorded pair the engine has a schedule for as many traces as testdata/pairs.txt says,
// and for none of those that were changed. One pair is asked in every run, and each as a long test.
func TestPairs(t *testing.T) {
	const path = "testdata/pairs.txt"
	r, err := OpenPairs()
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(path)
	if err != nil && !*rewrite {
		t.Fatal(err)
	}
	var rows []string
	for _, run := range r.Runs {
		name := run.Pair.Name
		if !*rewrite && name != "dwrite-dwrite" && !need.Drawn(t, t.Name()+"/"+name) {
			continue
		}
		x, err := run.Judge(Policy, 2)
		if err != nil {
			t.Fatal(err)
		}
		row := fmt.Sprintf("%s: %d of %d traces", name, x.Accepted, x.Traces)
		rows = append(rows, row)
		if x.Rejected != x.Mutants || x.Mutants < x.Accepted {
			t.Errorf("%s: %d of %d changed traces rejected: %q", name, x.Rejected, x.Mutants, x.Why)
		}
		if !*rewrite && !strings.Contains(string(have), row+"\n") {
			t.Errorf("%s, and %s says otherwise (-rewrite writes it): %q", row, path, x.Why)
		}
	}
	if *rewrite {
		have = []byte(strings.Join(rows, "\n") + "\n")
		if err := os.WriteFile(filepath.FromSlash(path), have, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	accepted, traces := 0, 0
	for line := range strings.Lines(string(have)) {
		var a, n int
		_, counts, _ := strings.Cut(line, ": ")
		if _, err := fmt.Sscanf(counts, "%d of %d traces", &a, &n); err != nil {
			t.Fatalf("%s: bad line %q", path, line)
		}
		accepted, traces = accepted+a, traces+n
	}
	const page = "../../../labs/reference/13-conform.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%d of %d traces", accepted, traces); !strings.Contains(strings.Join(strings.Fields(string(text)), " "), want) {
		t.Errorf("%s does not say %q", page, want)
	}
}

// An engine whose steps are those of another kernel, or of none, has no schedule for some traces
// for which modern has one.
func TestPairsOfWrongEngines(t *testing.T) {
	r, err := OpenPairs()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ pair, policy string }{
		{"write-punch", "unlocked"},
		{"dwrite-dwrite", "locked"},
		{"write-dread", "range-lock"},
	} {
		for _, run := range r.Runs {
			if run.Pair.Name != c.pair {
				continue
			}
			own, err := run.Judge(Policy, 0)
			if err != nil {
				t.Fatal(err)
			}
			x, err := run.Judge(c.policy, 0)
			if err != nil {
				t.Fatal(err)
			}
			if x.Accepted >= own.Accepted {
				t.Errorf("%s under policy %s: %d of %d traces are accepted, under %s %d", c.pair, c.policy, x.Accepted, x.Traces, Policy, own.Accepted)
			}
		}
	}
}
