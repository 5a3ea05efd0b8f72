package nb

import (
	"strings"
	"testing"
)

// TestGantt: the page has the CPUs of the machine and the lock that the writers wait for.
func TestGantt(t *testing.T) {
	p, err := Gantt(Options{CPUs: 3, FileMiB: 1, Seconds: 0.002}, "locked")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CPU 2", "i_rwsem", "seed 002 under locked"} {
		if !strings.Contains(p.text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(p.text, "CPU 3") {
		t.Error("the page has a fourth CPU")
	}
	for _, bad := range []Options{{CPUs: MaxCPUs + 1}, {Model: "tape"}, {Seed: "009"}} {
		if _, err := Gantt(bad, "locked"); err == nil {
			t.Errorf("%+v ran", bad)
		}
	}
	if _, err := Gantt(Options{}, "none"); err == nil {
		t.Error("policy none ran")
	}
}
