package conform

import (
	"math/rand/v2"
	"slices"
	"testing"

	"btrlab/internal/testing/need"
)

// plants are the errors that an engine may make at a step: it leaves the step out, makes it twice,
// or makes it after the next one.
var plants = []struct {
	name string
	at   func(steps []Event, i int) []Event
}{
	{"dropped", func(s []Event, i int) []Event { return slices.Concat(s[:i], s[i+1:]) }},
	{"doubled", func(s []Event, i int) []Event { return slices.Concat(s[:i+1], s[i:]) }},
	{"swapped", func(s []Event, i int) []Event {
		if i+1 == len(s) {
			return s
		}
		return slices.Concat(s[:i], []Event{s[i+1], s[i]}, s[i+2:])
	}},
}

// No name may cover an error: each of the engine's steps in each operation is dropped, doubled and
// swapped with the next one of its lane, and the recorded kernel must show every such engine, by a
// row that is open or an expected one that is gone. Those that make the alignment worse, with more
// differences or fewer same steps, are counted apart: most of the others are steps that Linux does
// not make. With -short, one step in five is drawn.
func TestPlanted(t *testing.T) {
	need.Long(t)
	const sampled = 5
	var all, worse [3][Groups]int
	for i := range Ops {
		op := &Ops[i]
		ours := engineEvents(t, op, Policy)
		for l := range lanes {
			steps, theirs := inLane(ours, l), OpenRecorded().sequences(op.Name, l)[0]
			honest := plantedLane(t, op, l, theirs, steps)
			for i := range steps {
				if testing.Short() && i%sampled != honest.Engine%sampled {
					continue
				}
				for k, plant := range plants {
					wrong := plant.at(steps, i)
					if slices.Equal(wrong, steps) {
						continue
					}
					x := plantedLane(t, op, l, theirs, wrong)
					if x.Explained() {
						t.Errorf("%s, %s: %q (%d) is %s, and each difference is as expected", op.Name, l, &steps[i], i, plant.name)
					}
					all[k][steps[i].Group]++
					if x.differ() > honest.differ() || x.Same < honest.Same {
						worse[k][steps[i].Group]++
					}
				}
			}
		}
	}
	sum := func(n [3][Groups]int) (total int) {
		for k := range plants {
			for _, n := range n[k] {
				total += n
			}
		}
		return total
	}
	t.Logf("%d planted errors, of which %d make the alignment worse: all are seen", sum(all), sum(worse))
	for g := range Groups {
		for k, plant := range plants {
			last := g == Answers && plant.name == "swapped" // an answer is the last step
			if all[k][g] == 0 && !testing.Short() && !last {
				t.Errorf("no step of %s was %s", g, plant.name)
			}
			t.Logf("%-16s %s: %4d, worse %4d", g, plant.name, all[k][g], worse[k][g])
		}
	}
}

// plantedLane compares a lane of an operation.
func plantedLane(t *testing.T, op *Op, l Lane, theirs, ours []Event) *Result {
	t.Helper()
	x := &Result{Op: op, Engine: len(ours)}
	if err := x.compareLane(OpenRecorded(), l, theirs, ours); err != nil {
		t.Fatal(err)
	}
	return x
}

// differ is the number of rows that differ.
func (r *Result) differ() (n int) {
	for _, d := range r.Differ {
		n += d
	}
	return n
}

// controls is how many errors control draws for each kernel.
const controls = 200

// control asks the other way round what TestPlanted asks of the engine: of a kernel's steps one,
// drawn at random, is dropped, doubled, swapped with the next one or moved to the other tasks, and
// the comparison with the engine must not be as expected. Returned is of how many it was not.
func control(t *testing.T, k *Recorded) (noticed int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	ours := map[*Op][]Event{}
	for range controls {
		op, theirs := drawn(t, rng, k)
		if ours[op] == nil {
			ours[op] = engineEvents(t, op, DefaultPolicy(k.Version()))
		}
		x, err := k.compare(op, theirs, ours[op])
		if err != nil {
			t.Fatal(err)
		}
		if !x.Explained() {
			noticed++
		}
	}
	return noticed
}

// drawn is an operation and what a kernel did in it, with an error.
func drawn(t *testing.T, rng *rand.Rand, k *Recorded) (*Op, []Event) {
	t.Helper()
	for {
		op := &Ops[rng.IntN(len(Ops))]
		steps, err := k.first(op)
		if err != nil {
			t.Fatal(err)
		}
		if len(steps) == 0 {
			continue
		}
		i, kind := rng.IntN(len(steps)), rng.IntN(len(plants)+1)
		if kind == len(plants) { // moved
			moved := slices.Clone(steps)
			moved[i].Lane = 1 - moved[i].Lane
			return op, moved
		}
		l := steps[i].Lane
		lane := inLane(steps, l)
		wrong := plants[kind].at(lane, rng.IntN(len(lane)))
		if !slices.Equal(wrong, lane) {
			return op, slices.Concat(wrong, inLane(steps, 1-l))
		}
	}
}
