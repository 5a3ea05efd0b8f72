package noticed

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// What came of faults is the same after it was written and read. The share is of those that compile
// and are not argued away, and an argument that a test refutes is named.
func TestFaults(t *testing.T) {
	faults := []Fault{
		{ID: "a", Dir: "internal/x", Verdict: Killed, By: "TestA", Tests: 2}, {ID: "b", Dir: "internal/x", Verdict: Hangs, Argued: "no difference"},
		{ID: "c", Dir: "internal/y", Line: 7, Old: "f(\n  1)", New: "<nothing>", Verdict: Survives, Tests: 3}, {ID: "d", Dir: "internal/y", Verdict: Unreached},
		{ID: "e", Dir: "internal/y", Verdict: Survives, Argued: "no difference"}, {ID: "f", Dir: "internal/y", Verdict: Unbuilt},
	}
	text, err := json.Marshal(faults)
	if err != nil {
		t.Fatal(err)
	}
	var read []Fault
	if err := json.Unmarshal(text, &read); err != nil || !slices.Equal(read, faults) {
		t.Errorf("%v, %+v", err, read)
	}
	if s := Share(faults); s != 0.5 {
		t.Errorf("noticed %v, want a half", s)
	}
	if Share(faults[5:]) != 1 {
		t.Error("of none not all are noticed")
	}
	if l := Wrong(faults); len(l) != 1 || l[0].ID != "b" {
		t.Errorf("%+v", l)
	}
	table := Table(faults)
	for _, want := range []string{
		"x                              2       1       1           0        0           0",
		"y                              3       0       0           1        1           1",
		"all                            5       1       1           1        1           1",
		"noticed 50.0 % of those that are not equivalent\n1 more do not compile\n", "c (line 7, 3 tests)\n  survives: f( 1)\n  -> <nothing>\n",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("want %s in\n%s", want, table)
		}
	}
	var v Verdict
	if err := v.UnmarshalText([]byte("gone")); err == nil || !strings.Contains(err.Error(), "killed, hangs") {
		t.Error(err)
	}
}
