package repair

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"btrlab/internal/progs/check"
)

var rewriteGuide = flag.Bool("guide.rewrite", false, "write the tables of labs/guide/broken.md")

// TestEveryRule: each rule of the check has a step that puts it right, or a reason why there is
// none.
func TestEveryRule(t *testing.T) {
	steps := map[string]int{}
	for _, st := range stages {
		for _, s := range st {
			if (s.mend == nil) == (s.files == nil) || len(s.says) == 0 {
				t.Errorf("a step for %v: want mend or files, and what it says", s.rules)
			}
			for _, rule := range s.rules {
				steps[rule]++
			}
		}
	}
	reasons := map[string]bool{}
	for _, l := range unmended {
		reasons[l.broken] = true
	}
	for _, r := range check.Rules {
		switch {
		case steps[r.Name] == 0 && !reasons[r.Name]:
			t.Errorf("%s has neither a step nor a reason", r.Name)
		case steps[r.Name] > 0 && reasons[r.Name]:
			t.Errorf("%s has a step, and a reason why it has none", r.Name)
		}
		delete(steps, r.Name)
		delete(reasons, r.Name)
	}
	if len(steps)+len(reasons) > 0 {
		t.Errorf("there are no such rules: %v %v", steps, reasons)
	}
}

// TestGuide: the tables of the guide are those of the steps.
func TestGuide(t *testing.T) {
	const path = "../../../labs/guide/broken.md"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mended, left := "", ""
	for _, st := range stages {
		for _, s := range st {
			for _, l := range s.says {
				mended += fmt.Sprintf("| %s | %s |\n", l.broken, l.from)
			}
		}
	}
	for _, l := range unmended {
		left += fmt.Sprintf("| `%s` | %s |\n", l.broken, l.from)
	}
	page := string(b)
	for head, want := range map[string]string{"| broken | made from |\n|---|---|\n": mended, "| rule | why |\n|---|---|\n": left} {
		before, rest, found := strings.Cut(page, head)
		if !found {
			t.Fatalf("%s has no table %q", path, head)
		}
		have, after, _ := strings.Cut(rest, "\n\n")
		if have += "\n"; strings.HasPrefix(rest, "\n") { // it has no rows yet
			have, after = "", rest[1:]
		}
		if have == want {
			continue
		}
		if page = before + head + want + "\n" + after; *rewriteGuide {
			continue
		}
		h, w := strings.Split(have, "\n"), strings.Split(want, "\n")
		i := 0
		for h[i] == w[i] {
			i++
		}
		t.Errorf("%s, row %d of %q: have %q want %q (go test -run TestGuide -guide.rewrite)", path, i+1, head, h[i], w[i])
	}
	if *rewriteGuide {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
