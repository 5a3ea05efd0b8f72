package levels

// The tests that hold answers of labs. This file is not handed out: see package handout.

import (
	"strings"
	"testing"
)

// TestSteps: a step is a line of the program, and shows the words after it.
func TestSteps(t *testing.T) {
	l, err := Lookup("lost-truncate")
	if err != nil {
		t.Fatal(err)
	}
	tr := l.Replay("5:1")
	var got []string
	for _, s := range tr.Steps[2:] {
		got = append(got, s.What.String()+"; size "+s.State[0])
	}
	want := "lock m; size 4|s = size; size 4|unlock m; size 4|lock m; size 4|size = 1; size 1|unlock m; size 1|size = max(s, 3); size 4"
	if strings.Join(got, "|") != want {
		t.Errorf("have %s\nwant %s", strings.Join(got, "|"), want)
	}
	if tr.Own != 2 || tr.Replay != "btrlab lab run 0 lost-truncate '5:1'" {
		t.Errorf("%d tasks, %s", tr.Own, tr.Replay)
	}
	code := `size = 4
0 write             1 truncate
lock m              lock m
s = size            size = 1
unlock m            unlock m
size = max(s, 3)
`
	if l.Code() != code {
		t.Errorf("have\n%swant\n%s", l.Code(), code)
	}
}
