package drawn

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"

	"btrlab/internal/judge/noticed"
)

// Outcome is a site with what became of its fault.
type Outcome struct {
	*Site
	noticed.Verdict
	By     string // the test that noticed it
	Tests  int    // that reach the site
	Took   time.Duration
	Argued string // why it is equivalent
}

// Argued reads the arguments for equivalent faults: lines of an identity, a tab and a reason.
func Argued(name string) (map[string]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		l := lines.Text()
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		id, why, ok := strings.Cut(l, "\t")
		if !ok || why == "" {
			return nil, fmt.Errorf("%s: bad line, have %q want an identity, a tab and a reason", name, l)
		}
		m[id] = why
	}
	return m, lines.Err()
}

// Fault is the outcome as a value that can be written.
func (o *Outcome) Fault() noticed.Fault {
	return noticed.Fault{ID: o.ID, Dir: o.Dir(), Line: o.Line, Old: o.Old, New: o.New, Verdict: o.Verdict, By: o.By, Tests: o.Tests, Argued: o.Argued}
}

// Faults are all of them.
func Faults(outcomes []Outcome) []noticed.Fault {
	l := make([]noticed.Fault, len(outcomes))
	for i := range outcomes {
		l[i] = outcomes[i].Fault()
	}
	return l
}
