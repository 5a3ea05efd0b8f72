package draw

import (
	"fmt"
	"testing"

	"btrlab/internal/policy"
)

// A policy looks the same whatever it is compared with, and no two rows of a comparison look the
// same.
func TestStyles(t *testing.T) {
	look := func(s Style) string { return fmt.Sprint(s.Color, s.Dashes, s.Mark) }
	all := Styles(policy.Names())
	for i, p := range policy.Names() {
		if alone := Styles([]string{p})[0]; look(alone) != look(all[i]) {
			t.Errorf("%s is %v alone and %v among all", p, alone, all[i])
		}
		with := Styles([]string{"another", p, "modern+FSYNC_LOG", "linux"})
		if look(with[1]) != look(all[i]) {
			t.Errorf("%s is %v beside rows without a style", p, with[1])
		}
	}
	for _, p := range policy.All() {
		if _, ok := styleOf[p.Name]; !ok {
			t.Errorf("policy %s has no style", p.Name)
		}
	}
	for _, rows := range [][]string{policy.Names(), policy.NowaitNames(), policy.UnalignedNames(), policy.FsyncNames(), append(policy.NowaitNames(), policy.Names()...),
		{"before", "after", "no D0", "no D1", "no D2", "no D3", "no D4", "no D5", "no D6", "no D7", "linux", "linux-nowait"}, {"locked", "locked"}} {
		seen := map[string]bool{}
		for _, s := range Styles(rows) {
			seen[look(s)] = true
		}
		if len(seen) != len(rows) {
			t.Errorf("%d styles for %d rows: %v", len(seen), len(rows), rows)
		}
	}
}
