package check

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"
	"time"

	"btrlab/internal/testing/need"
)

var (
	mutants    = flag.Int("repair.mutants", 150, "damaged images that TestRepairMutants repairs")
	mutantSeed = flag.Uint64("repair.seed", 1, "the first of their seeds")
)

// TestRepairMutants damages one to three places of tree blocks at random, with checksums made right
// again, and repairs: no panic, no endless round, no file lost that could be read, and what is
// proposed is what the image is afterwards, never worse.
func TestRepairMutants(t *testing.T) {
	need.Long(t)
	base := fullSample(t)
	blocks := base.trees()
	var whole, clean, better, left, unknown int
	var longest time.Duration
	for i := range *mutants {
		seed := *mutantSeed + uint64(i)
		rng := rand.New(rand.NewPCG(seed, 0))
		picks := []uint64{rng.Uint64(), rng.Uint64(), rng.Uint64()}[:1+rng.IntN(3)]
		m := base.clone(t)
		m.damage(blocks, picks)
		if i%8 == 0 {
			bounded(t, m)
		}
		before := readable(t, m.tk, m.dev)
		start := time.Now()
		r, err := Propose(m.tk, m.dev, Options{})
		longest = max(longest, time.Since(start))
		switch {
		case err != nil:
			unknown++ // a device that is missing
			continue
		case r.Before.Clean:
			whole++ // or nothing else says so
			continue
		case !r.Better():
			left++
			continue
		case r.After.Clean:
			clean++
		default:
			better++
		}
		if err := m.commit(r); err != nil {
			t.Fatal(seed, err)
		}
		after := readable(t, m.tk, m.dev)
		for id, want := range before {
			if have, ok := after[id]; !ok || have != want {
				t.Errorf("seed %d: file %s: have %q want %q\n%s\n%q", seed, id, have, want, r.Before.text(), r.Done)
			}
		}
		if res := m.check(); !slices.Equal(res.Findings, r.After.Findings) {
			t.Errorf("seed %d: after Commit:\n%swant\n%s", seed, res.text(), r.After.text())
		}
	}
	t.Logf("%d mutants from seed %d: %d without a finding; after a repair %d clean, %d better, %d left, %d refused; the longest took %v", *mutants, *mutantSeed, whole, clean, better, left, unknown, longest)
	if clean < *mutants/4 {
		t.Errorf("%d of %d are clean after a repair", clean, *mutants)
	}
}

// TestRepairMutantsLinux does the same to an image of Linux. What is clean here after a repair is
// clean to btrfs check, too.
func TestRepairMutantsLinux(t *testing.T) {
	need.Long(t)
	need.All(t, need.Root, "bash", "mkfs.btrfs", "btrfs", "setfattr")
	base, img, _ := linuxImage(t, deletedScript)
	blocks := base.trees()
	rounds := 10
	if need.Forced() {
		rounds = 150
	}
	var clean, both int
	for i := range rounds {
		seed := *mutantSeed + uint64(i)
		rng := rand.New(rand.NewPCG(seed, 0))
		m := base.clone(t)
		m.damage(blocks, []uint64{rng.Uint64(), rng.Uint64()}[:1+rng.IntN(2)])
		before := readable(t, m.tk, m.dev)
		r, err := Propose(m.tk, m.dev, Options{})
		if err != nil || !r.Better() {
			continue
		}
		if err := m.commit(r); err != nil {
			t.Fatal(seed, err)
		}
		after := readable(t, m.tk, m.dev)
		for id, want := range before {
			if have, ok := after[id]; !ok || have != want {
				t.Errorf("seed %d: file %s: have %q want %q\n%s\n%q", seed, id, have, want, r.Before.text(), r.Done)
			}
		}
		if !r.After.Clean {
			continue
		}
		clean++
		toFile(t, m, img)
		if out, err := exec.Command("btrfs", "check", img).CombinedOutput(); err != nil || bytes.Contains(out, []byte("ERROR:")) {
			t.Errorf("seed %d: clean here only\n%s\n%q\n%s", seed, r.Before.text(), r.Done, out)
			continue
		}
		both++
	}
	t.Logf("%d of %d mutants from seed %d clean after a repair, %d to btrfs check as well", clean, rounds, *mutantSeed, both)
}
