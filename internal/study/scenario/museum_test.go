package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/need"
)

// The edges that a deadlock's report must name: what is waited for and who brings it about.
var edges = map[string][]string{
	"11 direct-and-space": {
		"task 0 direct, which must flush for a ticket for data space, waits for extent [0, 4K), which task 1 fiemap holds",
		"task 1 fiemap waits for extent [96K, 160K), which task 0 direct holds\n",
	},
	"15 direct-mapped": {"task 0 writer waits for ordered extent [0, 4K), which it must finish itself"},
	"11 range-and-space": {
		"task 0 fallocate, which must flush for a ticket for data space, waits for ordered extent [0, 4K), which task 3 endio/0 must finish",
		"task 3 endio/0 waits for extent [0, 4K), which task 1 fiemap holds",
		"task 1 fiemap waits for extent [16K, 32K), which task 0 fallocate holds\n",
	},
	"18 range-and-space": {
		"waits for ordered extent [0, 4K), which task 3 endio/0 must finish",
		"task 3 endio/0 waits for extent [0, 4K), which task 1 fiemap holds",
		// it keeps what it has got
		"\ntask 1 fiemap waits for extent [16K, 32K); holds extent [0, 16K)",
	},
	"25 page-and-extent": {
		"task 0 writer waits for page 0, which task 1 writeback holds",
		"task 1 writeback waits for extent [0, 4K), which task 0 writer holds\n",
	},
}

// Every exhibit proves itself twice: the named wrong order is broken, by the kind of violation it
// tells about, and the right one passes.
func TestMuseum(t *testing.T) {
	need.Long(t)
	for i := range Museum {
		e := &Museum[i]
		x, err := e.Show(Options{Config: func(c *explore.Config) { c.Schedules = 20_000 }})
		must(t, err)
		if !x.OK {
			t.Errorf("%d %s: wrong order %s %q %q, right order %s %q", e.Number, e.Title, x.Found.Bound, x.Found.Kind, x.Found.Violation, x.Proof.Bound, x.Proof.Violation)
		}
		for _, edge := range edges[fmt.Sprintf("%d %s", e.Number, e.Scenario)] {
			if x.Found.Kind != explore.KindDeadlock || !strings.Contains(x.Found.Violation.String(), edge) || !strings.Contains(x.Trace.Violation.String(), edge) {
				t.Errorf("%d %s: %s\nno %q in\n%s\nor in the replay\n%s", e.Number, e.Title, x.Found.Kind, edge, x.Found.Violation, x.Trace.Violation)
			}
		}
		t.Logf("%d %s: %s %s; %s", e.Number, x.Found.Bound, x.Found.Schedule, x.Found.Kind, x.Proof.Bound)
	}
}

// Without D0_ASYNC_EXT only a file that was compressed has its pages looked at a second time: Linux
// asks BTRFS_INODE_HAS_ASYNC_EXTENT first. Here every file was taken for one.
func TestAsyncExtentsOfCompressedOnly(t *testing.T) {
	s, err := Lookup("nowait-dio-async")
	must(t, err)
	plain := *s
	plain.Name, plain.File.Compressed = "nowait-dio-plain", false
	p, err := parsePolicy("nowait-5.19+BUF_UNLOCK_IN_EOF!D0_ASYNC_EXT")
	must(t, err)
	for _, c := range []struct {
		s      *Scenario
		broken bool
	}{{s, true}, {&plain, false}} {
		x, err := Run(c.s, p, Options{})
		must(t, err)
		if (x.Verdict == explore.Violated) != c.broken {
			t.Errorf("%s: %v: %s", c.s.Name, x.Verdict, x.Violation)
		}
	}
}

// TestExhibitScripts: the script of an exhibit is one of testdata/crash, which the tests of the log
// and of Linux run too.
func TestExhibitScripts(t *testing.T) {
	files, err := filepath.Glob("../../../testdata/crash/*.ops")
	must(t, err)
	known := map[string]string{}
	for _, name := range files {
		b, err := os.ReadFile(name)
		must(t, err)
		var lines []string
		for l := range strings.Lines(string(b)) {
			if !strings.HasPrefix(l, "#") {
				lines = append(lines, strings.TrimSpace(l))
			}
		}
		known[strings.Join(lines, "\n")] = name
	}
	n := 0
	for _, e := range Museum {
		if e.Script == "" {
			continue
		}
		if n++; known[e.Script] == "" {
			t.Errorf("%d %s: no file of testdata/crash has its script:\n%s", e.Number, e.Title, e.Script)
		}
	}
	if n < 4 {
		t.Errorf("%d exhibits have a crash script, want 4", n)
	}
}

// TestExhibitRows: each exhibit is a row of labs/reference 9.2, with its number and its scenario,
// and each row with a scenario is an exhibit.
func TestExhibitRows(t *testing.T) {
	b, err := os.ReadFile("../../../labs/reference/09-locks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, bugs, _ := strings.Cut(string(b), "\n### 9.2 ")
	rows := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|.*\| ([a-z0-9-]+) \|$`).FindAllStringSubmatch(bugs, -1) {
		rows[m[1]+" "+m[2]] = true
	}
	for _, e := range Museum {
		row := fmt.Sprintf("%d %s", e.Number, e.Scenario)
		if _, ok := rows[row]; !ok {
			t.Errorf("labs/reference 9.2 has no row %s (%s)", row, e.Title)
		}
		rows[row] = false
	}
	for row, missing := range rows {
		if missing {
			t.Errorf("labs/reference 9.2 has row %s, which is no exhibit", row)
		}
	}
}
