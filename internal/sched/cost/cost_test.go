package cost

import (
	"strings"
	"testing"
)

// TestLoad: a table of a calibration changes what it measured and nothing else; one that is none is
// refused with a reason.
func TestLoad(t *testing.T) {
	a := Default()
	err := a.Load(strings.NewReader(`{"cpus": 2, "costs": [{"name": "copy", "ns": 0.25}, {"name": "line", "ns": 0, "measured": false}, {"name": "lock", "ns": 0, "measured": true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Entries[Copy].Nano, want.Entries[Lock].Nano = 0.25, 0
	for i := range want.Entries {
		if have := a.Entries[i].Nano; have != want.Entries[i].Nano {
			t.Errorf("%s: have %g want %g", want.Entries[i].Name, have, want.Entries[i].Nano)
		}
	}
	for text, why := range map[string]string{
		`[1]`:                                     "want JSON",
		`{"rows": []}`:                            `no "costs"`,
		`{"costs": [{"name": "copy"}]}`:           `without "ns"`,
		`{"costs": [{"name": "kopy", "ns": 1}]}`:  `no entry "kopy"`,
		`{"costs": [{"name": "copy", "ns": -1}]}`: "want at least 0",
	} {
		b := Default()
		if err := b.Load(strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), "bad table of costs, ") || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: have error %v, want one with %q", text, err, why)
		}
	}
}
