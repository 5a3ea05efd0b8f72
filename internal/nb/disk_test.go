package nb

import (
	"math"
	"strings"
	"testing"
)

// TestServeDisk: a row for each policy, a bar and a sentence, and what is out of bounds is said.
func TestServeDisk(t *testing.T) {
	for _, bad := range []DiskOptions{{MiB: MaxDisk + 1}, {Depth: MaxDepth + 1}, {Reads: 101}, {Rounds: -1}, {Seconds: MaxSeconds + 1}, {Policies: []string{"none"}}, {Model: "tape"}} {
		if _, err := ServeDisk(bad); err == nil {
			t.Errorf("%+v ran, want an error", bad)
		}
	}
	d, err := ServeDisk(DiskOptions{Policies: []string{"locked", "bounce"}, MiB: 8, Depth: 4, Reads: 50, FlushSeconds: 0.02, Seconds: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	if d.Ratio("locked") != 1 || !(d.Rate("bounce") > 0) || !(d.Stable("bounce") >= 0) || !(d.Lock("locked") >= 0) || !math.IsNaN(d.Rate("unlocked")) {
		t.Errorf("%+v", d.rows)
	}
	if tab := d.Table(); len(tab.Rows) != 2 || len(tab.Rows[0]) != len(tab.Head) {
		t.Errorf("%+v", tab)
	}
	if c := d.Conclude(); len(c.Rows) != 1 || !strings.Contains(c.Rows[0][0], "bounce") {
		t.Errorf("%+v", c)
	}
	if f, err := d.Ratios(); err != nil || len(f.PNG) == 0 || !strings.Contains(f.Alt, "bounce") {
		t.Errorf("%v %q", err, f.Alt)
	}
}
