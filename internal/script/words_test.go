package script

import (
	"slices"
	"testing"
)

func TestWords(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string
		bad  bool
	}{
		{"", nil, false},
		{"  # ls /", nil, false},
		{" ls\t-l  / ", []string{"ls", "-l", "/"}, false},
		{`write --data "a b" '/x\y' c\ d`, []string{"write", "--data", "a b", `/x\y`, "c d"}, false},
		{`a"b c"d '' "" #`, []string{"ab cd", "", "", "#"}, false},
		{`"a`, nil, true}, {`a\`, nil, true},
	} {
		have, err := Words(c.line)
		if !slices.Equal(have, c.want) || (err != nil) != c.bad {
			t.Errorf("%q: have %q, %v; want %q", c.line, have, err, c.want)
		}
	}
}
