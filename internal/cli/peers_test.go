package cli

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/cli/app"
)

var peerRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `([^`]+)`(?: is needed)? \\|$")

// The guide's table says which verb stands for a word of another tool: the word runs as that verb,
// or the one line that answers it names the verb.
func TestPeers(t *testing.T) {
	b, err := os.ReadFile("../../labs/guide/peers.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := peerRow.FindAllStringSubmatch(string(b), -1)
	if len(rows) < 60 {
		t.Fatalf("the guide has %d rows", len(rows))
	}
	for _, r := range rows {
		words, here := strings.Fields(r[1]), r[2]
		verb := strings.Fields(here)
		root := newCmdline(nil, nil, nil).root()
		if verb[0] != "nothing" {
			if cmd, _, err := root.Find(verb); err != nil || cmd == root {
				t.Errorf("%s: there is no verb %s", r[1], here)
			}
		}
		if typed := aliased(append(slices.Clone(words), "x")); !slices.Equal(typed[:len(typed)-1], words) || typed[0] == verb[0] {
			if !strings.HasPrefix(strings.Join(typed, " "), verb[0]) {
				t.Errorf("%s runs %q, the guide says %s", r[1], typed, here)
			}
			continue
		}
		if here == "nothing" {
			here = "none is needed"
		}
		var out, errw bytes.Buffer
		if code := Main(append(words, "x"), strings.NewReader(""), &out, &errw); code != app.ExitUsage || strings.Count(errw.String(), "\n") != 1 || !strings.Contains(errw.String(), here) {
			t.Errorf("%s: exit code %d, %q, want %s", r[1], code, errw.String(), here)
		}
	}
}
