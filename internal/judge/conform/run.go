package conform

import (
	"cmp"
	"fmt"
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
	// Differ counts, by group, the rows that are not Same; Open those of them that have no name.
	Differ, Open [Groups]int
	// Has says which groups either side has events of.
	Has [Groups]bool
}

// Agrees says that the two sides made the same steps in a group.
func (r *Result) Agrees(g Group) bool { return r.Differ[g] == 0 }

// AgreesAll says that no step differs.
func (r *Result) AgreesAll() bool { return r.Differ == [Groups]int{} }

// Explained says that each difference has a name.
func (r *Result) Explained() bool { return r.Open == [Groups]int{} }

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
type Kernel struct{ *tracedKernel }

// Open gets at the kernel's tracepoints; images are made in dir, which must be on a real file
// system. An error says in a line why it cannot be.
func Open(dir string) (*Kernel, error) {
	k, err := openKernel(dir)
	if err != nil {
		return nil, err
	}
	return &Kernel{k}, nil
}

// Compare runs an operation on both sides.
func (k *Kernel) Compare(op *Op) (*Result, error) {
	img, err := makeImage(op.size())
	if err != nil {
		return nil, err
	}
	theirs, err := k.run(img, op)
	if err != nil {
		return nil, fmt.Errorf("%s: kernel: %w", op.Name, err)
	}
	ours, err := runEngine(img, op)
	if err != nil {
		return nil, fmt.Errorf("%s: engine: %w", op.Name, err)
	}
	return compare(op, theirs, ours), nil
}

// compare aligns what the sides did, lane by lane.
func compare(op *Op, theirs, ours []Event) *Result {
	r := &Result{Op: op, Kernel: len(theirs), Engine: len(ours)}
	for l := range lanes {
		r.Rows[l] = Align(inLane(theirs, l), inLane(ours, l))
		for i := range r.Rows[l] {
			row := &r.Rows[l][i]
			g := cmp.Or(row.Kernel, row.Engine).Group
			r.Has[g] = true
			if row.Mark == Same {
				r.Same++
				continue
			}
			r.Differ[g]++
			if row.Known = nameOf(op, row); row.Known == "" {
				r.Open[g]++
			}
		}
	}
	return r
}

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
