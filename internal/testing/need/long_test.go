package need

import (
	"fmt"
	"testing"
)

// Over many commits each test has its turn about once in N, and a commit draws about one in N.
func TestDrawn(t *testing.T) {
	const n, commits, tests = 4, 400, 60
	of := map[string]int{}
	for c := range commits {
		have := 0
		for i := range tests {
			name := fmt.Sprintf("TestX%d", i)
			run, why := drawn(fmt.Sprintf("%d/%x", n, c*7919), name)
			if why != "" {
				t.Fatal(why)
			}
			if run {
				have++
				of[name]++
			}
		}
		if have == 0 || have > tests*2/3 {
			t.Errorf("commit %d draws %d of %d tests", c, have, tests)
		}
	}
	for i := range tests {
		if have := of[fmt.Sprintf("TestX%d", i)]; have < commits/n/2 || have > commits/n*2 {
			t.Errorf("test %d had %d turns in %d commits, want about %d", i, have, commits, commits/n)
		}
	}
}

func TestDrawnWords(t *testing.T) {
	for _, c := range []struct {
		env string
		run bool
		bad bool
	}{{"", true, false}, {"0", false, false}, {"1/x", true, false}, {"yes", false, true}, {"0/x", false, true}, {"-1/x", false, true}, {"4", false, true}} {
		if run, why := drawn(c.env, "TestX"); run != c.run || why != "" != c.bad {
			t.Errorf("%s=%q: have %v %q, want %v, refused %v", LongEnv, c.env, run, why, c.run, c.bad)
		}
	}
}
