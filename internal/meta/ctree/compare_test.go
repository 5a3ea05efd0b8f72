package ctree

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"btrlab/internal/format"
)

// Two trees that were one differ in what has changed since, and in nothing else; also when one has
// grown by a level.
func TestCompare(t *testing.T) {
	for seed := range uint64(8) {
		b := newBed(t, 4096, 2000)
		b.ptrs = 12
		b.limitPtrs()
		rng := rand.New(rand.NewPCG(seed, 3))
		m := model{}
		for range []int{0, 30, 400, 2000}[seed%4] {
			b.op(rng, m, 1500, 120)
		}
		old := maps.Clone(m)
		snap, err := b.f.Snapshot(b.task, b.tr, b.root, testTree+1)
		must(t, err)
		b.root.EndSnapshot()
		b.commit(nil)
		for _, changes := range []int{0, 1, 20, 3000} {
			for range changes {
				b.op(rng, m, 1500, 120)
			}
			b.commit(nil)
			want := diff(old, m)
			if have := b.diff(snap, b.root); !maps.Equal(have, want) {
				t.Errorf("seed %d, %d changes: have %d differences, want %d", seed, changes, len(have), len(want))
			}
		}
		if have, want := b.diff(nil, b.root), diff(model{}, m); !maps.Equal(have, want) {
			t.Errorf("seed %d: against nothing: have %d items, want %d", seed, len(have), len(want))
		}
		if have, want := b.diff(b.root, snap), diff(m, old); !maps.Equal(have, want) {
			t.Errorf("seed %d: the other way round: have %d differences, want %d", seed, len(have), len(want))
		}
		stop := fmt.Errorf("stop")
		if err := b.f.Compare(b.task, nil, b.root, func(format.Key, []byte, []byte) error { return stop }); len(m) > 0 && err != stop {
			t.Errorf("seed %d: an error of the function: have %v", seed, err)
		}
	}
}

// diff is what two models do not have in common.
func diff(a, b model) map[format.Key]string {
	d := map[format.Key]string{}
	for k, v := range a {
		if w, ok := b[k]; !ok {
			d[k] = "- " + v
		} else if v != w {
			d[k] = "~ " + v + w
		}
	}
	for k, w := range b {
		if _, ok := a[k]; !ok {
			d[k] = "+ " + w
		}
	}
	return d
}

func (b *bed) diff(x, y *Root) map[format.Key]string {
	d := map[format.Key]string{}
	var last format.Key
	must(b.t, b.f.Compare(b.task, x, y, func(key format.Key, old, item []byte) error {
		if len(d) > 0 && !last.Less(key) {
			b.t.Errorf("%v after %v", key, last)
		}
		last = key
		switch {
		case item == nil:
			d[key] = "- " + string(old)
		case old == nil:
			d[key] = "+ " + string(item)
		default:
			d[key] = "~ " + string(old) + string(item)
		}
		return nil
	}))
	return d
}
