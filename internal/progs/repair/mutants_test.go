package repair

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"
	"time"

	"btrlab/internal/progs/check"
	"btrlab/internal/testing/damaged"
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
	blocks := base.Trees()
	var whole, clean, better, left, unknown int
	var longest time.Duration
	for i := range *mutants {
		seed := *mutantSeed + uint64(i)
		rng := rand.New(rand.NewPCG(seed, 0))
		picks := []uint64{rng.Uint64(), rng.Uint64(), rng.Uint64()}[:1+rng.IntN(3)]
		m := base.Clone(t)
		m.Damage(blocks, picks)
		if i%8 == 0 {
			damaged.Bounded(t, m)
		}
		before := readable(t, m.Task, m.Dev)
		start := time.Now()
		r, err := Propose(m.Task, m.Dev, check.Options{})
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
		if err := commit(m, r); err != nil {
			t.Fatal(seed, err)
		}
		after := readable(t, m.Task, m.Dev)
		for id, want := range before {
			if have, ok := after[id]; !ok || have != want {
				t.Errorf("seed %d: file %s: have %q want %q\n%s\n%q", seed, id, have, want, damaged.Text(r.Before), r.Done)
			}
		}
		if res := m.Check(); !slices.Equal(res.Findings, r.After.Findings) {
			t.Errorf("seed %d: after Commit:\n%swant\n%s", seed, damaged.Text(res), damaged.Text(r.After))
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
	base, img, _ := damaged.LinuxImage(t, deletedScript)
	blocks := base.Trees()
	rounds := 10
	if need.Forced() {
		rounds = 150
	}
	var clean, both int
	for i := range rounds {
		seed := *mutantSeed + uint64(i)
		rng := rand.New(rand.NewPCG(seed, 0))
		m := base.Clone(t)
		m.Damage(blocks, []uint64{rng.Uint64(), rng.Uint64()}[:1+rng.IntN(2)])
		before := readable(t, m.Task, m.Dev)
		r, err := Propose(m.Task, m.Dev, check.Options{})
		if err != nil || !r.Better() {
			continue
		}
		if err := commit(m, r); err != nil {
			t.Fatal(seed, err)
		}
		after := readable(t, m.Task, m.Dev)
		for id, want := range before {
			if have, ok := after[id]; !ok || have != want {
				t.Errorf("seed %d: file %s: have %q want %q\n%s\n%q", seed, id, have, want, damaged.Text(r.Before), r.Done)
			}
		}
		if !r.After.Clean {
			continue
		}
		clean++
		damaged.ToFile(t, m, img)
		if out, err := exec.Command("btrfs", "check", img).CombinedOutput(); err != nil || bytes.Contains(out, []byte("ERROR:")) {
			t.Errorf("seed %d: clean here only\n%s\n%q\n%s", seed, damaged.Text(r.Before), r.Done, out)
			continue
		}
		both++
	}
	t.Logf("%d of %d mutants from seed %d clean after a repair, %d to btrfs check as well", clean, rounds, *mutantSeed, both)
}
