package drawn

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// Outcome is a site with what became of its fault.
type Outcome struct {
	*Site
	Verdict
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

// Share is the part of the faults that were noticed, of those that nobody argues to be equivalent;
// 1 if there are none.
func Share(outcomes []Outcome) float64 {
	noticed, all := 0, 0
	for _, o := range outcomes {
		if o.Verdict.Noticed() {
			noticed++
		} else if o.Argued != "" {
			continue
		}
		all++
	}
	if all == 0 {
		return 1
	}
	return float64(noticed) / float64(all)
}

// Table is the outcomes by room, and the faults that were not noticed.
func Table(outcomes []Outcome) string {
	type row struct{ drawn, killed, hangs, argued, survive, unreached int }
	rows := map[string]*row{}
	add := func(room string, o *Outcome) {
		r := rows[room]
		if r == nil {
			r = &row{}
			rows[room] = r
		}
		r.drawn++
		switch {
		case o.Verdict == Killed:
			r.killed++
		case o.Verdict == Hangs:
			r.hangs++
		case o.Argued != "":
			r.argued++
		case o.Verdict == Unreached:
			r.unreached++
		default:
			r.survive++
		}
	}
	var left strings.Builder
	for i := range outcomes {
		o := &outcomes[i]
		add(strings.TrimPrefix(o.Dir(), "internal/"), o)
		add("all", o)
		if !o.Verdict.Noticed() && o.Argued == "" {
			fmt.Fprintf(&left, "%s (line %d, %d tests)\n  %s: %s\n  -> %s\n", o.ID, o.Line, o.Tests, o.Verdict, oneLine(o.Old), oneLine(o.New))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-24s%8s%8s%8s%12s%9s%12s\n", "room", "drawn", "killed", "hang", "equivalent", "survive", "not reached")
	line := func(name string) {
		r := rows[name]
		fmt.Fprintf(&b, "%-24s%8d%8d%8d%12d%9d%12d\n", name, r.drawn, r.killed, r.hangs, r.argued, r.survive, r.unreached)
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		if name != "all" {
			line(name)
		}
	}
	if rows["all"] != nil {
		line("all")
	}
	fmt.Fprintf(&b, "noticed %.1f %% of those that are not equivalent\n", 100*Share(outcomes))
	if left.Len() > 0 {
		b.WriteString("\nnot noticed:\n" + left.String())
	}
	return b.String()
}

// oneLine is a piece of code in one line.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 160 {
		s = s[:157] + "..."
	}
	return s
}
