package cli

import (
	"bytes"
	"strings"
	"testing"
)

// What people type who know btrfs, debugfs or the shell is pointed at what does it here: one line,
// exit code 2, and the verbs that it names are there.
func TestForeignWords(t *testing.T) {
	a := &app{}
	verbs := map[string]bool{}
	for _, c := range a.root().Commands() {
		verbs[c.Name()] = true
	}
	for word, does := range foreignWords {
		if verbs[word] {
			t.Errorf("%q is a verb", word)
		}
		var out, errw bytes.Buffer
		code := Main(append(strings.Fields(word), "x"), strings.NewReader(""), &out, &errw)
		if code != exitUsage || strings.Count(errw.String(), "\n") != 1 || !strings.Contains(errw.String(), "want "+does) {
			t.Errorf("%s: exit code %d, %q", word, code, errw.String())
		}
		first := strings.FieldsFunc(does, func(r rune) bool { return r == ' ' || r == ',' || r == ':' })[0]
		if first != "nothing" && first != "the" && !verbs[first] {
			t.Errorf("%s: there is no verb %q", word, first)
		}
	}
	for typed, want := range map[string]string{"fi us": "want df", "filesystem d": "want d", "fi": "want info", "subvol": "want subvolume"} {
		var errw bytes.Buffer
		if Main(strings.Fields(typed), nil, &bytes.Buffer{}, &errw); !strings.Contains(errw.String(), want) {
			t.Errorf("%s: %q, want %q", typed, errw.String(), want)
		}
	}
}
