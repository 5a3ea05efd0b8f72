package crash_test

import (
	"testing"

	"btrlab/internal/fs"
	"btrlab/internal/judge/crash"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// The space has each sequence once: of one and two operations those that Bounded had before there
// were numbers, of three 165,925,040, of which neighbours differ.
func TestSpace(t *testing.T) {
	for length, want := range map[int]int{1: 500, 2: 282_056, 3: 165_925_040} {
		p := crash.NewSpace(length)
		if p.Len() != want {
			t.Errorf("%d sequences of %d operations, want %d", p.Len(), length, want)
		}
		step := max(1, want/20_000)
		seen := map[string]bool{}
		for n := 0; n+1 < want; n += step {
			a, b := p.At(n).Script(), p.At(n+1).Script()
			if a == b || seen[a] {
				t.Fatalf("sequence %d of %d operations: %s, then %s", n, length, a, b)
			}
			seen[a] = true
		}
	}
	first, last := crash.NewSpace(3).At(0).Script(), crash.NewSpace(3).At(165_925_039).Script()
	if first != "touch /foo; sync; touch /foo; sync; touch /foo; sync" || last != "mv /A /B; mv /A /B; mv /A /B; fsync /B" {
		t.Errorf("from %s to %s", first, last)
	}
}

// The batches of a run are the run: as many sequences and states, whatever their order.
func TestBatches(t *testing.T) {
	tk := sched.NewTask(t.Name())
	dev, o := image(t, tk), crash.Options{FS: fs.Options{Policy: policy.MustParse("modern")}}
	whole, err := crash.RunBounded(tk, dev, o, crash.Bounds{Length: 1, Jobs: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ length, sample, sequences, batches int }{{1, 0, 500, 50}, {3, 25, 25, 3}} {
		b := crash.NewBatches(c.length, c.sample, 4)
		if b.Sequences != c.sequences || b.Len() != c.batches {
			t.Errorf("%d sequences in %d batches, want %d in %d", b.Sequences, b.Len(), c.sequences, c.batches)
		}
		var sum crash.Batch
		for n := range b.Len() {
			x, ok, err := b.Run(tk, dev, o, n, func() bool { return false })
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			sum.Add(&x)
		}
		if sum.Sequences != c.sequences || sum.First != nil || c.length == 1 && sum.States != whole.States {
			t.Errorf("%+v, want %d states", sum, whole.States)
		}
	}
	b := crash.NewBatches(1, 0, 1)
	if _, ok, err := b.Run(tk, dev, o, 0, func() bool { return true }); ok || err != nil {
		t.Error("a batch that was stopped is whole", err)
	}
	x, ok, err := b.Run(tk, dev, crash.Options{Wrong: "no-flush"}, 3, func() bool { return false })
	if err != nil || !ok || x.Losing == 0 || x.First == nil || len(x.First.Script) == 0 || len(x.First.Timeline) == 0 {
		t.Errorf("without flushes: %+v, %v, %v", x, ok, err)
	}
}

// A sample of the sequences of three operations, which are too many for one machine, from all over
// the space.
func TestBoundedThree(t *testing.T) {
	const sample = 300
	tk := sched.NewTask(t.Name())
	dev, o := image(t, tk), crash.Options{FS: fs.Options{Policy: policy.MustParse("modern")}}
	p := crash.NewSpace(3)
	states := 0
	for i := range sample {
		q := p.At(i * (p.Len() / sample))
		c, _, n, err := q.Run(tk, dev, o)
		if err != nil {
			t.Fatal(err)
		}
		if states += n; c != nil {
			t.Errorf("%s: %s", q.Script(), c.Loss)
		}
	}
	if states < sample/3 {
		t.Errorf("%d sequences have %d states: hardly anything was promised", sample, states)
	}
}
