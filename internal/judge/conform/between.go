package conform

import (
	"fmt"
	"io"
	"strings"

	"btrlab/internal/prose"
)

// Between is what changed in an operation from one recorded kernel to another: the first sequences
// of both, aligned. Steps that one of the two does not show are left out of both.
func Between(a, b *Recorded, op *Op) (*Result, error) {
	theirs, err := a.first(op)
	if err != nil {
		return nil, err
	}
	ours, err := b.first(op)
	if err != nil {
		return nil, err
	}
	theirs, ours = b.shown(theirs), a.shown(ours)
	x := &Result{Op: op, Kernel: len(theirs), Engine: len(ours), sides: [2]string{a.Version(), b.Version()}}
	for l := range lanes {
		x.Rows[l] = Align(inLane(theirs, l), inLane(ours, l))
		for i := range x.Rows[l] {
			row := &x.Rows[l][i]
			g := row.group()
			x.Has[g] = true
			if row.Mark == Same {
				x.Same++
			} else {
				x.Differ[g]++
			}
		}
	}
	return x, nil
}

// WriteBetween prints the table of operations of two recorded kernels.
func WriteBetween(w io.Writer, a, b *Recorded, results []*Result) error {
	var s strings.Builder
	fmt.Fprintf(&s, "Linux %s and Linux %s\n", a.Release, b.Release)
	var out []string
	for _, r := range []*Recorded{a, b} {
		out = append(out, r.Missing()...)
		if !r.Functions {
			out = append(out, "the steps of functions, which "+r.Version()+" does not show")
		}
	}
	if len(out) > 0 {
		for _, line := range prose.Hang("", "", "Left out of both: "+strings.Join(out, ", ")+".", prose.Width) {
			fmt.Fprintln(&s, line)
		}
	}
	fmt.Fprintf(&s, "\n%-22s %6s %6s %6s  %s", "steps of", a.Version(), b.Version(), "same", "parts that differ")
	var sum [3]int
	for _, x := range results {
		fmt.Fprintf(&s, "\n%s", strings.TrimRight(fmt.Sprintf("%-22s %6d %6d %6d  %s", x.Op.Name, x.Kernel, x.Engine, x.Same, x.parts()), " "))
		sum[0], sum[1], sum[2] = sum[0]+x.Kernel, sum[1]+x.Engine, sum[2]+x.Same
	}
	fmt.Fprintf(&s, "\n%-22s %6d %6d %6d\n", "all", sum[0], sum[1], sum[2])
	_, err := io.WriteString(w, s.String())
	return err
}

// DefaultPolicy is the engine's policy beside a kernel of a version: that of its era where Eras has
// one, or Policy.
func DefaultPolicy(version string) string {
	if p := Eras[version]; p != "" {
		return p
	}
	return Policy
}

// Eras are the policies of kernels, by version: an era that has a preset of its own. 6.18 is what
// policy modern follows.
var Eras = map[string]string{"5.10": "linux-5.10", "6.1": "linux-6.1", "6.12": "linux-6.12", "7.3": "linux-7.3"}
