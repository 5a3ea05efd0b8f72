package script

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestParseRefuses: what is no line of this language, each with a word of the error.
func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"frobnicate /a": "no verb", "touch": "0 arguments", "sync /a": "1 arguments", "mv /a": "want /from /to",
		"mkdir -x /a": "unknown shorthand", "mkdir -m 9 /a": "mode", "chmod 10000 /a": "mode", "truncate /a": "no size",
		"truncate --size 1x /a": "is not a size", "fallocate /a": "no length", "write /a": "nothing to write", `touch "/a`: "quote",
	} {
		if l, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: have %v, %v, want an error with %q", text, l, err, want)
		}
	}
	for _, text := range []string{"", "  ", "# touch /a"} {
		if l, err := Parse(text); err != nil || l.Run(nil, nil) != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestSteps: a script on one line.
func TestSteps(t *testing.T) {
	if have := Steps(" touch /a;; mv /a /b ; "); !slices.Equal(have, []string{"touch /a", "mv /a /b"}) {
		t.Errorf("have %q", have)
	}
	if have := Verbs(); !slices.Equal(have, slices.Sorted(maps.Keys(verbs))) || !slices.Contains(have, "mv") {
		t.Errorf("have %q", have)
	}
}
