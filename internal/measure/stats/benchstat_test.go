package stats

import (
	"strings"
	"testing"
)

// A line for benchstat has the name with its keys and no blanks, the number of requests, and pairs
// of a value and its unit; a run without a request has none.
func TestBenchLine(t *testing.T) {
	var b strings.Builder
	if err := BenchLine(&b, "Compare", []string{"job=my job", "policy=a/b-drain"}, 4, 1000, 50000, 77); err != nil {
		t.Fatal(err)
	}
	if err := BenchLine(&b, "Compare", nil, 4, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if want := "BenchmarkCompare/job=my_job/policy=a_b-drain-4\t1000\t20000.0 ns/op\t50000.0 iops\t77 p99-ns\n"; b.String() != want {
		t.Errorf("have %q want %q", b.String(), want)
	}
}
