package own_test

import (
	"testing"

	"btrlab/internal/policy"
	"btrlab/internal/study/own"
	"btrlab/labs/kit"
)

// A policy with New throttles its writers itself, in its own functions: the write path does not ask
// it to with the inode locked, whatever the switches of its folder say. One without New leaves the
// place of the throttling to its switches.
func TestThrottlesOutside(t *testing.T) {
	made := func() kit.Policy { return nil }
	for _, k := range []struct {
		name, base string
		made       func() kit.Policy
		want       bool
	}{
		{"throttle-locked", "locked", made, true},
		{"throttle-already", "locked+BALANCE_OUTSIDE", made, true},
		{"throttle-prewait", "prewait", made, true},
		{"throttle-switches", "locked", nil, false},
	} {
		c := own.Compiled{Name: k.name, Base: k.base, Functions: own.Functions{New: k.made}}
		if err := c.Add(); err != nil {
			t.Fatal(err)
		}
		p, err := policy.Parse(k.name)
		if err != nil {
			t.Fatal(err)
		}
		if have := p.Set.Has(policy.BalanceOutside); have != k.want {
			t.Errorf("%s on %s: throttled without the lock %v, want %v", k.name, k.base, have, k.want)
		}
		if p.Own == nil || p.Own.Base == "" || len(p.Own.Classes) == 0 {
			t.Errorf("%s: own %+v", k.name, p.Own)
		}
	}
}
