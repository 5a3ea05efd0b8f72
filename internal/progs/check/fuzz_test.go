package check_test

import (
	"math/rand/v2"
	"testing"

	"btrlab/internal/progs/check"
	"btrlab/internal/testing/damaged"
)

// TestRandomDamage: whatever a tree block says under a good checksum, the check ends, without
// panic, and finds most of it. What it may not find are the fields that nothing else repeats:
// times, transids, owners, permissions.
func TestRandomDamage(t *testing.T) {
	base := damaged.NewImage(t)
	blocks := base.Trees()
	if len(blocks) != 11 {
		t.Fatalf("the sample has %d tree blocks", len(blocks))
	}
	const seed, rounds = 1, 400
	rng := rand.New(rand.NewPCG(seed, 0))
	found := 0
	for range rounds {
		m := base.Clone(t)
		picks := []uint64{rng.Uint64(), rng.Uint64()}[:1+rng.IntN(2)]
		m.Damage(blocks, picks)
		r, err := check.Check(m.Task, m.Dev, check.Options{})
		if err != nil || !r.Clean {
			found++
		}
	}
	if found < rounds/2 {
		t.Errorf("seed %d: found something in %d of %d damaged images", seed, found, rounds)
	}
	t.Logf("found something in %d of %d", found, rounds)
}

// FuzzCheck looks for damage that makes the check panic or run on.
func FuzzCheck(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint64(3))
	f.Add(uint64(0x0100000000000000), uint64(0x7f00000000012305), uint64(0x8000000000000a01))
	var base *damaged.Image
	var blocks []uint64
	f.Fuzz(func(t *testing.T, a, b, c uint64) {
		if base == nil {
			base = damaged.NewImage(t)
			blocks = base.Trees()
		}
		m := base.Clone(t)
		m.Damage(blocks, []uint64{a, b, c})
		check.Check(m.Task, m.Dev, check.Options{})
	})
}
