// Package noticed counts planted faults: which of them the tests have noticed. Package
// judge/mutants/drawn plants them.
package noticed

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Verdict is the fate of a fault.
type Verdict int

// The verdicts.
const (
	Killed    Verdict = iota // a test failed
	Hangs                    // the tests took far longer than without it, twice, and were ended
	Survives                 // all tests passed that reach it
	Unreached                // no test reaches it
	Unbuilt                  // the compiler does not take it; of shards only
)

var verdicts = [...]string{"killed", "hangs", "survives", "not reached", "does not build"}

func (v Verdict) String() string { return verdicts[v] }

// MarshalText makes the text form.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads the text form.
func (v *Verdict) UnmarshalText(b []byte) error {
	i := slices.Index(verdicts[:], string(b))
	if i < 0 {
		return fmt.Errorf("bad verdict, have %q want one of %s", b, strings.Join(verdicts[:], ", "))
	}
	*v = Verdict(i)
	return nil
}

// Noticed says that whoever runs the tests would have seen it.
func (v Verdict) Noticed() bool { return v == Killed || v == Hangs }

// Work is what the planting of drawn faults is called in the file of a shard.
const Work = "make drawn"

// Asked is what was asked for.
type Asked struct {
	Draw  int     `json:"draw"`
	Seed  string  `json:"seed"`
	Rooms string  `json:"rooms,omitempty"`
	Sites string  `json:"sites"` // the digest of the faults that are drawn
	Least float64 `json:"least"`
}

// Fault is a small change of the code, and what became of it.
type Fault struct {
	ID      string  `json:"id"`
	Dir     string  `json:"dir"`
	Line    int     `json:"line"`
	Old     string  `json:"old"`
	New     string  `json:"new"`
	Verdict Verdict `json:"verdict"`
	By      string  `json:"by,omitempty"` // the test that noticed it
	Tests   int     `json:"tests"`        // that reach the site
	Argued  string  `json:"argued,omitempty"`
}

// Wrong are the faults that are argued to be equivalent, and noticed.
func Wrong(faults []Fault) (l []Fault) {
	for _, f := range faults {
		if f.Argued != "" && f.Verdict.Noticed() {
			l = append(l, f)
		}
	}
	return l
}

// Share is the part of the faults that were noticed, of those that nobody argues to be equivalent;
// 1 if there are none.
func Share(faults []Fault) float64 {
	noticed, all := 0, 0
	for _, o := range faults {
		switch {
		case o.Verdict == Unbuilt:
			continue
		case o.Verdict.Noticed():
			noticed++
		case o.Argued != "":
			continue
		}
		all++
	}
	if all == 0 {
		return 1
	}
	return float64(noticed) / float64(all)
}

// Table is the faults by room, and those that were not noticed.
func Table(faults []Fault) string {
	type row struct{ drawn, killed, hangs, argued, survive, unreached int }
	rows := map[string]*row{}
	add := func(room string, o *Fault) {
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
	unbuilt := 0
	for i := range faults {
		o := &faults[i]
		if o.Verdict == Unbuilt {
			unbuilt++
			continue
		}
		add(strings.TrimPrefix(o.Dir, "internal/"), o)
		add("all", o)
		if !o.Verdict.Noticed() && o.Argued == "" {
			fmt.Fprintf(&left, "%s (line %d, %d tests)\n  %s: %s\n  -> %s\n", o.ID, o.Line, o.Tests, o.Verdict, OneLine(o.Old), OneLine(o.New))
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
	fmt.Fprintf(&b, "noticed %.1f %% of those that are not equivalent\n", 100*Share(faults))
	if unbuilt > 0 {
		fmt.Fprintf(&b, "%d more do not compile\n", unbuilt)
	}
	if left.Len() > 0 {
		b.WriteString("\nnot noticed:\n" + left.String())
	}
	return b.String()
}

// OneLine is a piece of code in one line.
func OneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 160 {
		s = s[:157] + "..."
	}
	return s
}
