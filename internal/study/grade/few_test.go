package grade

import (
	"fmt"
	"strings"
	"testing"
)

// TestClean: the text of a panic cleared the teacher's terminal and set its title. A row has no
// such characters once it is clean, wherever the text is, and no gigabyte.
func TestClean(t *testing.T) {
	const evil = "\x1b[2J\x1b]0;title\x07\u202e\u009b2J\r\xffäß"
	const shown = `\x1b[2J\x1b]0;title\a\u202e\u009b2J\r\xff` + "äß"
	x := Row{Name: "a" + evil, Asks: evil, Result: evil + "\nmore", Schedule: evil, Replay: evil, Trace: evil + "\n\tstep", Shared: evil, Workload: evil, Parts: []Part{{Result: evil}}}
	x.Clean()
	for _, have := range []string{strings.TrimPrefix(x.Name, "a"), x.Asks, strings.TrimSuffix(x.Result, "\nmore"), x.Schedule, x.Replay, strings.TrimSuffix(x.Trace, "\n\tstep"), x.Shared, x.Workload, x.Parts[0].Result} {
		if have != shown {
			t.Errorf("have %q want %q", have, shown)
		}
	}
	again := x
	if again.Clean(); again.Result != x.Result {
		t.Errorf("cleaned twice it is %q, once %q", again.Result, x.Result)
	}
	x = Row{Result: strings.Repeat("ä", 1<<25), Trace: strings.Repeat("line\n", 1<<22)}
	x.Clean()
	if len(x.Result) > 2*maxLine || !strings.HasSuffix(x.Result, "ä ...") || len(x.Trace) > 2*maxTrace {
		t.Errorf("%d and %d bytes are left", len(x.Result), len(x.Trace))
	}
}

// TestFew: of many mistakes the first are named, and how many there are.
func TestFew(t *testing.T) {
	var l []string
	for i := range maxLines + 1 {
		l = append(l, fmt.Sprint(i))
	}
	if have := Few(l); len(have) != maxLines+1 || have[maxLines] != fmt.Sprint(maxLines) {
		t.Errorf("have %q", have)
	}
	if have := Few(append(l, "x")); len(have) != maxLines+1 || have[maxLines] != "and 2 more" {
		t.Errorf("have %q", have)
	}
}
