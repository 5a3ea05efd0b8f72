package repair

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/testing/damaged"
	"btrlab/internal/testing/need"
)

var (
	damagesOne     = flag.Int("damages.one", 12, "single damages of TestDamagesLinux")
	damagesSeveral = flag.Int("damages.several", 8, "pairs and triples of TestDamagesLinux")
	damagesSeed    = flag.Uint64("damages.seed", 1, "seed of TestDamagesLinux")
)

// spoil does something to a random item of the image, with checksums made right again, and says
// what.
func spoil(m *damaged.Image, rng *rand.Rand, list map[string][]victim) string {
	kind := slices.Sorted(maps.Keys(list))[rng.IntN(len(list))]
	v := list[kind][rng.IntN(len(list[kind]))]
	n := m.Block(v.bytenr)
	slot, found := n.Search(v.k)
	if !found {
		return "nothing: it is gone already"
	}
	l := damaged.Items(n)
	b := slices.Clone(l[slot].B)
	what := ""
	switch op := rng.IntN(4); {
	case op == 0 || len(b) == 0:
		what = "deleted"
		l = slices.Delete(l, slot, slot+1)
	case op == 1:
		at := rng.IntN(len(b))
		b[at] ^= 1 << rng.IntN(8)
		what, l[slot].B = fmt.Sprintf("a bit of byte %d changed", at), b
	case op == 2:
		at := rng.IntN(max(1, len(b)-8))
		for i := at; i < min(len(b), at+8); i++ {
			b[i] = byte(rng.Uint32())
		}
		what, l[slot].B = fmt.Sprintf("bytes from %d on are noise", at), b
	default:
		clear(b)
		what, l[slot].B = "all zeros", b
	}
	damaged.Fill(n, l)
	m.Put(n)
	return fmt.Sprintf("%s %v: %s", kind, v.k, what)
}

// TestDamagesLinux draws damages of an image of Linux, with quotas on and their status of an older
// commit, as tools of btrfs-progs leave it: single ones, pairs and triples. What a repair calls
// clean is clean to btrfs check, and no file that could be read has other bytes or is gone, unless
// the damage itself did that.
func TestDamagesLinux(t *testing.T) {
	need.Long(t)
	need.All(t, need.Root, "bash", "mkfs.btrfs", "btrfs", "setfattr")
	m, img, _ := damaged.LinuxImage(t, deletedScript)
	theirs := func(d *damaged.Image) (bool, string) {
		damaged.ToFile(t, d, img)
		out, err := exec.Command("timeout", "60", "btrfs", "check", "--check-data-csum", img).CombinedOutput()
		return err == nil && !bytes.Contains(out, []byte("ERROR:")), string(out)
	}
	_, c, err := check.Examine(m.Task, m.Dev, check.Options{NoData: true})
	if err != nil || len(c.Findings) > 0 {
		t.Fatal(err, c.Findings)
	}
	all := kinds(c)
	status := m.Block(c.Roots[format.QUOTA_TREE_OBJECTID].Item.Bytenr)
	if slot, found := status.Search(damaged.Key(0, format.QGROUP_STATUS_KEY, 0)); found {
		le.PutUint64(status.Item(slot)[8:], m.Super.Generation-1)
		m.Put(status)
	} else {
		t.Fatal("no status of quotas in the root of their tree")
	}
	rng := rand.New(rand.NewPCG(*damagesSeed, 0))
	for _, set := range []struct {
		name     string
		n        int
		damages  int
		variants int
	}{{"single", *damagesOne, 1, 0}, {"pairs and triples", *damagesSeveral, 2, 2}} {
		took, ours, both, wrong := 0, 0, 0, 0
		for range set.n {
			d := m.Clone(t)
			var what []string
			for range set.damages + rng.IntN(max(1, set.variants)) {
				what = append(what, spoil(d, rng, all))
			}
			before, berr := readableFiles(d)
			r, err := Propose(d.Task, d.Dev, check.Options{})
			clean, _ := theirs(d)
			switch {
			case err != nil && clean:
				t.Errorf("%q: %v", what, err)
				continue
			case err != nil:
				took++
				continue // it cannot be read at all: no superblock leads to a chunk tree
			case r.Before.Clean && clean:
				continue
			case r.Before.Clean:
				took++
				t.Logf("%q: btrfs check finds it, this check does not", what)
				continue
			}
			took++
			if !r.Better() {
				continue
			}
			if err := commit(d, r); err != nil {
				t.Fatal(err)
			}
			if berr == nil {
				after, err := readableFiles(d)
				for id, want := range before {
					if have, ok := after[id]; (!ok || have != want) && err == nil && !strings.Contains(strings.Join(r.Done, "\n"), "lost") {
						t.Errorf("%q: file %s is lost by the repair: %q", what, id, r.Done)
					}
				}
			}
			if !r.After.Clean {
				continue
			}
			ours++
			if ok, out := theirs(d); ok {
				both++
			} else {
				wrong++
				t.Errorf("%q: clean here only after %q\n%s", what, r.Done, complaints(out))
			}
		}
		t.Logf("%s, seed %d: %d drawn, %d found by one of both checkers, %d clean after a repair, %d of them to btrfs check too, %d not", set.name, *damagesSeed, set.n, took, ours, both, wrong)
	}
}

// readableFiles is readable of an image that may not be.
func readableFiles(d *damaged.Image) (files map[string]string, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = errors.New(fmt.Sprint(v))
		}
	}()
	return readable(d.T, d.Task, d.Dev), nil
}

// complaints are the lines of btrfs check that say something.
func complaints(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "[") && len(b.String()) < 600 {
			b.WriteString(line)
		}
	}
	return b.String()
}
