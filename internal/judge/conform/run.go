package conform

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
)

// Op is an operation that both sides do.
type Op struct {
	Name  string
	About string
	Setup string // a script: see call
	Do    string // the script that is compared
	Size  int64  // of the image, bytes; 0 is DefaultSize
}

func (op *Op) size() int64 { return cmp.Or(op.Size, DefaultSize) }

// DefaultSize is the size of an image in bytes.
const DefaultSize = 512 << 20

// Result is one operation, compared.
type Result struct {
	Op     *Op
	Kernel int // events of the kernel
	Engine int // of the engine
	Same   int // that have a counterpart
	Rows   [lanes][]Row
	// Gone are the expected differences that are not there.
	Gone [lanes][]Row
	// Differ counts, by group, the rows that are not Same; Open those of them that have no name,
	// and the expected ones that are gone.
	Differ, Open [Groups]int
	// Has says which groups either side has events of.
	Has [Groups]bool
	// Again is how often the kernel did the operation once more, because its steps were not those
	// of any recorded run.
	Again int

	sides [2]string // what the columns are; "" is the kernel and the engine
}

// Agrees says that the two sides made the same steps in a group.
func (r *Result) Agrees(g Group) bool { return r.Differ[g] == 0 }

// AgreesAll says that no step differs.
func (r *Result) AgreesAll() bool { return r.Differ == [Groups]int{} }

// Explained says that the differences are the expected ones, row for row.
func (r *Result) Explained() bool { return r.unexpected() == 0 }

// unexpected is the number of rows that are open or gone.
func (r *Result) unexpected() (n int) {
	for _, open := range r.Open {
		n += open
	}
	return n
}

// setUp runs the setup and makes everything durable.
func setUp(m machine, op *Op) error {
	if err := script(m, op.Setup); err != nil {
		return fmt.Errorf("setup of %s: %w", op.Name, err)
	}
	return nil
}

func script(m machine, text string) error {
	for _, s := range steps(text) {
		if err := do(m, s); err != nil {
			return err
		}
	}
	return nil
}

// Kernel is the running kernel with its tracepoints. Close it.
type Kernel struct {
	*tracedKernel
	policy string          // the engine's
	ours   map[*Op][]Event // the engine's steps, which are the same each time
}

// Open gets at the kernel's tracepoints; images are made in dir, which must be on a real file
// system. An error says in a line why it cannot be.
func Open(dir string) (*Kernel, error) {
	k, err := openKernel(dir)
	if err != nil {
		return nil, err
	}
	return &Kernel{k, Policy, map[*Op][]Event{}}, nil
}

// tries is how often the kernel may do an operation. Its workers take turns as the machine has it:
// a run whose steps are not expected is made again, and the nearest counts. An engine that differs
// differs in each of them.
const tries = 3

// SetPolicy has the engine run under another policy than Policy.
func (k *Kernel) SetPolicy(policy string) {
	k.policy = policy
	clear(k.ours)
}

// Steps does an operation on the kernel alone.
func (k *Kernel) Steps(op *Op) ([]Event, error) {
	img, err := makeImage(op.size())
	if err != nil {
		return nil, err
	}
	return k.run(img, op)
}

// Compare runs an operation on both sides.
func (k *Kernel) Compare(op *Op) (*Result, error) { return k.compare(op, tries) }

// CompareOnce is Compare that takes the kernel's steps as they come first, for a record of them.
func (k *Kernel) CompareOnce(op *Op) (*Result, error) { return k.compare(op, 1) }

func (k *Kernel) compare(op *Op, tries int) (*Result, error) {
	img, err := makeImage(op.size())
	if err != nil {
		return nil, err
	}
	ours, ok := k.ours[op]
	if !ok {
		if ours, err = runEngine(img, op, k.policy); err != nil {
			return nil, fmt.Errorf("%s: engine: %w", op.Name, err)
		}
		k.ours[op] = ours
	}
	recorded := *recordedLike(k.Release(), k.Refused() == nil)
	recorded.lacks = map[string]bool{}
	for _, name := range k.Missing() {
		recorded.lacks[stepName(short(name))] = true
	}
	var best *Result
	for again := range tries {
		theirs, err := k.run(img, op)
		if err != nil {
			return nil, fmt.Errorf("%s: kernel: %w", op.Name, err)
		}
		r, err := recorded.compare(op, theirs, ours)
		if err != nil {
			return nil, err
		}
		if best == nil || r.unexpected() < best.unexpected() {
			best = r
		}
		best.Again = again
		if best.Explained() {
			break
		}
	}
	return best, nil
}

// compare aligns what the sides did, lane by lane, and asks whether each difference is expected.
func (r *Recorded) compare(op *Op, theirs, ours []Event) (*Result, error) {
	ours = r.shown(ours)
	x := &Result{Op: op, Kernel: len(theirs), Engine: len(ours)}
	for l := range lanes {
		if err := x.compareLane(r, l, inLane(theirs, l), inLane(ours, l)); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// shown are the steps that such a kernel would show.
func (r *Recorded) shown(events []Event) (list []Event) {
	for i := range events {
		if (r.Functions || !isFunction(&events[i])) && !r.lacks[events[i].Name] {
			list = append(list, events[i])
		}
	}
	return list
}

// compareLane fills what r has of a lane. Of the sequences that the kernel was recorded with, the
// nearest is the one that the differences are expected of.
func (r *Result) compareLane(recorded *Recorded, l Lane, theirs, ours []Event) error {
	rows := Align(theirs, ours)
	var gone []Row
	least := -1
	for i, kernel := range recorded.sequences(r.Op.Name, l) {
		want, err := recorded.expected.rows(place{r.Op.Name, l, i + 1}, kernel)
		if err != nil {
			return err
		}
		judged := slices.Clone(rows)
		missed := judge(judged, want)
		n := len(missed)
		for j := range judged {
			if judged[j].Mark != Same && judged[j].Known == "" {
				n++
			}
		}
		if least < 0 || n < least {
			r.Rows[l], gone, least = judged, missed, n
		}
	}
	if least < 0 {
		r.Rows[l] = rows
	}
	r.Gone[l] = gone
	for i := range r.Rows[l] {
		row := &r.Rows[l][i]
		g := row.group()
		r.Has[g] = true
		if row.Mark == Same {
			r.Same++
			continue
		}
		r.Differ[g]++
		if row.Known == "" {
			r.Open[g]++
		}
	}
	for i := range gone {
		r.Open[gone[i].group()]++
	}
	return nil
}

// group is that of the row's steps.
func (r *Row) group() Group { return cmp.Or(r.Kernel, r.Engine).Group }

func inLane(events []Event, l Lane) (list []Event) {
	for _, e := range events {
		if e.Lane == l {
			list = append(list, e)
		}
	}
	return list
}

// makeImage makes an empty file system; both sides begin with copies of it.
func makeImage(size int64) (*blockdev.Memory, error) {
	dev := blockdev.NewMemory(size)
	id := func(b byte) (u format.UUID) { u[0] = b; return u }
	return dev, mkfs.Make(sched.NewTask("mkfs"), dev, mkfs.Options{FSID: newFSID(), DevUUID: id(2), ChunkTreeUUID: id(3), SubvolUUID: id(4),
		Now: time.Unix(1700000000, 0)})
}
