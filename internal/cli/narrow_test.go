package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// On a narrow terminal no line is longer than it, but for a word that is: COLUMNS says so where
// there is no terminal. JSON is as it always is.
func TestNarrowOutput(t *testing.T) {
	lines := []string{
		"policy list", "policy show unlocked", "explore --help", "museum", "museum 1", "explore truncate-race --policy unlocked --schedules 200", "lab list", "crash --promises",
		"compare --policy locked,unlocked --rounds 1 --runtime-seconds 0.02 --size 4M --jobs 2 --runtime vtime", "replay truncate-race 11:1 --policy unlocked",
	}
	for _, columns := range []int{60, 40} {
		for _, line := range lines {
			t.Setenv("COLUMNS", map[int]string{60: "60", 40: "40"}[columns])
			var b, errw bytes.Buffer
			code := Main(strings.Fields(line), strings.NewReader(""), &b, &errw)
			out := b.String()
			if code == 2 || out == "" {
				t.Errorf("%s: exit code %d: %s", line, code, errw.String())
			}
			for l := range strings.Lines(out) {
				l = strings.TrimSuffix(l, "\n")
				if utf8.RuneCountInString(l) > columns {
					t.Errorf("%s: %d columns: %q", line, columns, l)
				}
			}
		}
	}
	t.Setenv("COLUMNS", "40")
	narrow := verb(t, 0, "policy", "list", "--json")
	t.Setenv("COLUMNS", "")
	if verb(t, 0, "policy", "list", "--json") != narrow {
		t.Error("JSON is not the same on a narrow terminal")
	}
}
