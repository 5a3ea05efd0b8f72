package relocation

import (
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/meta/volumes"
)

// Each filter takes what Linux takes.
func TestFilters(t *testing.T) {
	chunk := volumes.ChunkInfo{Logical: 1 << 30, Chunk: format.Chunk{Length: 1 << 30, Type: format.BlockGroupData | format.BlockGroupRAID1,
		Stripes: []format.Stripe{{Devid: 1, Offset: 1 << 20}, {Devid: 3, Offset: 5 << 30}}}}
	const half = 1 << 29
	for _, c := range []struct {
		what string
		a    format.BalanceArgs
		used uint64
		want bool
	}{
		{"nothing asked", format.BalanceArgs{}, half, true},
		{"its profile", format.BalanceArgs{Flags: format.BalanceProfiles, Profiles: format.BlockGroupRAID1 | format.ProfileSingle}, half, true},
		{"another profile", format.BalanceArgs{Flags: format.BalanceProfiles, Profiles: format.ProfileSingle}, half, false},
		{"usage=50 of half", format.BalanceArgs{Flags: format.BalanceUsage, UsageMax: 50}, half, false},
		{"usage=50 of less", format.BalanceArgs{Flags: format.BalanceUsage, UsageMax: 50}, half - 1, true},
		{"usage=0 of nothing", format.BalanceArgs{Flags: format.BalanceUsage}, 0, true},
		{"usage=0 of something", format.BalanceArgs{Flags: format.BalanceUsage}, 4096, false},
		{"usage=100 of all", format.BalanceArgs{Flags: format.BalanceUsage, UsageMax: 100}, 1 << 30, false},
		{"usage=50..60 of half", format.BalanceArgs{Flags: format.BalanceUsageRange, UsageMin: 50, UsageMax: 60}, half, true},
		{"usage=10..50 of half", format.BalanceArgs{Flags: format.BalanceUsageRange, UsageMin: 10, UsageMax: 50}, half, false},
		{"device 3", format.BalanceArgs{Flags: format.BalanceDevid, Devid: 3}, half, true},
		{"device 2", format.BalanceArgs{Flags: format.BalanceDevid, Devid: 2}, half, false},
		{"device 3, before it", format.BalanceArgs{Flags: format.BalanceDevid | format.BalanceDrange, Devid: 3, Pend: 5 << 30}, half, false},
		{"device 3, its start", format.BalanceArgs{Flags: format.BalanceDevid | format.BalanceDrange, Devid: 3, Pend: 5<<30 + 1}, half, true},
		{"device 3, its end", format.BalanceArgs{Flags: format.BalanceDevid | format.BalanceDrange, Devid: 3, Pstart: 6 << 30, Pend: 9 << 30}, half, false},
		{"addresses before it", format.BalanceArgs{Flags: format.BalanceVrange, Vend: 1 << 30}, half, false},
		{"addresses in it", format.BalanceArgs{Flags: format.BalanceVrange, Vstart: 2<<30 - 1, Vend: 3 << 30}, half, true},
		{"addresses after it", format.BalanceArgs{Flags: format.BalanceVrange, Vstart: 2 << 30, Vend: 3 << 30}, half, false},
		{"two stripes", format.BalanceArgs{Flags: format.BalanceStripesRange, StripesMin: 2, StripesMax: 2}, half, true},
		{"three stripes", format.BalanceArgs{Flags: format.BalanceStripesRange, StripesMin: 3, StripesMax: 9}, half, false},
		{"convert", format.BalanceArgs{Flags: format.BalanceConvert, Target: format.BlockGroupRAID1}, half, true},
		{"convert, soft", format.BalanceArgs{Flags: format.BalanceConvert | format.BalanceSoft, Target: format.BlockGroupRAID1}, half, false},
		{"convert, soft, to another", format.BalanceArgs{Flags: format.BalanceConvert | format.BalanceSoft, Target: format.ProfileSingle}, half, true},
	} {
		if have := Wants(&c.a, &chunk, c.used); have != c.want {
			t.Errorf("%s: %v", c.what, have)
		}
	}
}
