package stats

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"unicode"
)

// BenchHead begins a text for benchstat: of the units those that are better when they are higher.
func BenchHead(w io.Writer) error {
	_, err := fmt.Fprintf(w, "goos: %s\ngoarch: %s\npkg: btrlab\nUnit iops better=higher\n", runtime.GOOS, runtime.GOARCH)
	return err
}

// BenchLine is one run as go test prints a benchmark, which benchstat reads: keys are pairs such as
// policy=locked, which it sorts and compares by. A run in which nothing ended has no line.
func BenchLine(w io.Writer, name string, keys []string, cpus int, ios uint64, iops float64, p99 int64) error {
	if ios == 0 || iops == 0 {
		return nil
	}
	word := func(s string) string { // a name has no blanks, and / begins a key
		return strings.Map(func(r rune) rune {
			if unicode.IsSpace(r) || r == '/' {
				return '_'
			}
			return r
		}, s)
	}
	for _, k := range keys {
		name += "/" + word(k)
	}
	_, err := fmt.Fprintf(w, "Benchmark%s-%d\t%d\t%.1f ns/op\t%.1f iops\t%d p99-ns\n", name, cpus, ios, 1e9/iops, iops, p99)
	return err
}

// WriteBenchstat writes a line for each report of the run, under a policy.
func (r *Run) WriteBenchstat(w io.Writer, policy string, cpus int) error {
	if err := BenchHead(w); err != nil {
		return err
	}
	for _, j := range r.Jobs {
		ios, _ := j.Total()
		clat := Hist{}
		clat.Merge(&j.Read.Clat)
		clat.Merge(&j.Write.Clat)
		iops := j.Read.IOPS() + j.Write.IOPS()
		if err := BenchLine(w, "Bench", []string{"job=" + j.Name, "policy=" + policy}, cpus, ios, iops, clat.Percentile(99)); err != nil {
			return err
		}
	}
	return nil
}
