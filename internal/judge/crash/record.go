package crash

import (
	"fmt"
	"sync/atomic"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// Promise says what an operation makes durable once it has returned.
type Promise uint8

// The promises.
const (
	Nothing Promise = iota
	// fdatasync: of the file at Path all that is needed to find and read its bytes: not its mode,
	// owner, flags and times
	Data
	Inode // fsync: the file or directory at Path, as it was when the operation began
	All   // sync: everything
)

// PromiseOf returns the promise of a verb of btrlab sh.
func PromiseOf(verb string) Promise {
	return map[string]Promise{"sync": All, "fsync": Inode, "fdatasync": Data}[verb]
}

// Op is one operation of a workload.
type Op struct {
	Text    string // as btrlab sh has it
	Promise Promise
	Path    string // of Data and Inode
	// Steps is an operation of several steps, between which a commit may come: an inode that it
	// makes or changes may have a mode, an owner or flags that no version has.
	Steps bool
	// Loose is an operation that makes versions which nobody sees: while it runs, contents and
	// names are compared with none.
	Loose bool
}

// Options of a recording.
type Options struct {
	FS fs.Options
	// Wrong is the name of a wrong order (Wrongs) in which the device is made to have got the
	// writes; "" is none.
	Wrong string
}

// Recorder runs a workload.
type Recorder struct {
	FS *fs.FS

	calls atomic.Int64 // beginnings and ends of calls on Files
	ticks atomic.Int64 // of the clock

	o    Options
	log  *dm.LogWrites
	rec  *Recording
	over *dm.Overlay
}

// Recording is a workload that has run: what reached the device, and every version of the tree.
type Recording struct {
	Base blockdev.Device // the image before; not written
	Ops  []Op

	trees []*tree // trees[i] is before operation i; one more than there are operations
	// clock[i] is how many stamps the clock had given when trees[i] was seen; nil if the clock is
	// not the recorder's
	clock   []int64
	ids     []inodeID
	records []dm.Record
	hist    map[int64][]cover // by block
	epochs  []Epoch
	files   map[inodeID]*history // what Files did
	policy  *policy.Policy       // of every open
	order   order                // in which a device gets writes
	sb      format.Super
}

// cover is the bytes of a block that a record wrote.
type cover struct {
	rec  int
	data []byte
}

// NewRecorder opens the image on bases, which it does not write: one device.
func NewRecorder(t *sched.Task, bases []blockdev.Device, o Options) (*Recorder, error) {
	if len(bases) != 1 {
		return nil, fmt.Errorf("have %d devices, want one to record", len(bases))
	}
	base := bases[0]
	if err := checkWrong(o.Wrong); err != nil {
		return nil, err
	}
	r := &Recorder{o: o, rec: &Recording{Base: base, policy: o.FS.Policy, order: wrongs[o.Wrong]}}
	r.over = dm.NewOverlay(base, nil)
	r.log = dm.NewLogWrites(r.over, nil)
	ours := r.o.FS.Now == nil
	if ours {
		r.o.FS.Now = func() time.Time { return stamp.Add(time.Duration(r.ticks.Add(1)) * tick) }
	}
	if r.o.FS.Memory == 0 {
		r.o.FS.Memory = fs.NoLimit
	}
	f, err := fs.Open(t, []blockdev.Device{r.log}, r.o.FS)
	if err != nil {
		return nil, err
	}
	r.FS = f
	r.rec.sb = f.Super(t)
	v, err := observe(t, f, nil)
	if err != nil {
		return nil, fmt.Errorf("read the tree: %w", err)
	}
	r.rec.trees = append(r.rec.trees, v)
	if ours {
		r.rec.clock = append(r.rec.clock, r.ticks.Load())
	}
	return r, nil
}

// stamp is the first time stamp of a workload, and tick the time between two: those of a workload
// are the same each time.
var stamp = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const tick = time.Millisecond

// gave reports whether the clock gave x to an operation between the versions of w: an inode has
// such a stamp between two steps of it.
func (r *Recording) gave(w window, x time.Time) bool {
	n := int64(x.Sub(stamp) / tick)
	return r.clock != nil && r.clock[w.lo] < n && n <= r.clock[w.hi] && stamp.Add(time.Duration(n)*tick).Equal(x)
}

// Do runs one operation, which do carries out. Its error is do's: an operation that failed has
// promised nothing, and what it did is seen all the same.
func (r *Recorder) Do(t *sched.Task, op Op, do func() error) error {
	i := len(r.rec.Ops)
	id := inodeID{}
	if op.Promise == Inode || op.Promise == Data {
		// of a symbolic link the file that it leads to
		if at, err := r.FS.Stat(t, op.Path); err == nil {
			id = inodeID{at.Subvol, at.Ino}
		}
	}
	r.rec.Ops, r.rec.ids = append(r.rec.Ops, op), append(r.rec.ids, id)
	r.log.Mark(t, fmt.Sprintf("begin %d", i))
	err := do()
	if err != nil {
		r.rec.Ops[i].Promise = Nothing
	}
	r.log.Mark(t, fmt.Sprintf("end %d", i))
	v, oerr := observe(t, r.FS, r.rec.trees[i])
	if oerr != nil {
		return fmt.Errorf("read the tree after %q: %w", op.Text, oerr)
	}
	r.rec.trees = append(r.rec.trees, v)
	if r.rec.clock != nil {
		r.rec.clock = append(r.rec.clock, r.ticks.Load())
	}
	return err
}

// End ends the recording. The file system is left as it is, without a commit.
func (r *Recorder) End(t *sched.Task) (*Recording, error) {
	rec := r.rec
	rec.records = r.log.Records(t)
	r.FS.Pause(t)
	rec.records = rec.order(rec.records, &rec.sb)
	for i := range rec.records {
		if w := &rec.records[i]; w.Kind == dm.RecordWrite && (w.Off%blockSize != 0 || len(w.Data)%blockSize != 0) {
			return nil, fmt.Errorf("bad write of %d bytes at %d, want whole blocks of %d", len(w.Data), w.Off, blockSize)
		}
	}
	rec.index()
	return rec, nil
}

// Close ends the file system without a recording.
func (r *Recorder) Close(t *sched.Task) { r.FS.Pause(t) }

// Writes and Flushes count what reached the device.
func (r *Recording) Writes() (writes, flushes int) {
	for i := range r.records {
		switch r.records[i].Kind {
		case dm.RecordWrite:
			writes++
		case dm.RecordFlush:
			flushes++
		}
	}
	return writes, flushes
}

// Epoch is the time between two flushes.
type Epoch struct {
	end     int   // records before it were submitted at the crash
	safe    int   // those before it are on the medium
	pending []int // writes that may be lost
	begun   int   // operations that had begun
	ended   int   // ... and returned, all of them from the first on
}

// index finds the epochs and what covers each block.
func (r *Recording) index() {
	r.hist = map[int64][]cover{}
	safe, begun, ended := 0, 0, 0
	for i := 0; i <= len(r.records); i++ {
		if i < len(r.records) {
			switch rec := &r.records[i]; rec.Kind {
			case dm.RecordWrite:
				for o := int64(0); o < int64(len(rec.Data)); o += blockSize {
					b := (rec.Off + o) / blockSize
					r.hist[b] = append(r.hist[b], cover{i, rec.Data[o:min(int64(len(rec.Data)), o+blockSize)]})
				}
				continue
			case dm.RecordMark:
				var n int
				if _, err := fmt.Sscanf(rec.Mark, "begin %d", &n); err == nil {
					begun = n + 1
				} else if _, err := fmt.Sscanf(rec.Mark, "end %d", &n); err == nil {
					ended = n + 1
				}
				continue
			}
		}
		e := Epoch{end: i, safe: safe, begun: begun, ended: ended}
		for j := safe; j < i; j++ {
			if r.records[j].Kind == dm.RecordWrite {
				e.pending = append(e.pending, j)
			}
		}
		r.epochs = append(r.epochs, e)
		if i < len(r.records) {
			safe = max(safe, r.records[i].Safe)
		}
	}
}

// medium is the bytes of a block that records before safe wrote, or nil.
func (r *Recording) medium(block int64, safe int) []byte {
	l := r.hist[block]
	for i := len(l) - 1; i >= 0; i-- {
		if l[i].rec < safe {
			return l[i].data
		}
	}
	return nil
}

// Device is the image after the crash s: a device of its own, which may be written.
func (r *Recording) Device(t *sched.Task, s State) (*dm.Overlay, error) {
	e := &r.epochs[s.Flush-1]
	o := dm.NewOverlay(r.Base, func(block int64) []byte { return r.medium(block, e.safe) })
	lost := map[int]bool{}
	for _, n := range s.Lost {
		lost[n] = true
	}
	torn := map[int]Tear{}
	for _, x := range s.Torn {
		torn[x.Write] = x
	}
	for i, j := range e.pending {
		rec := &r.records[j]
		if lost[i+1] {
			continue
		}
		from, to := 0, len(rec.Data)
		if x, ok := torn[i+1]; ok {
			from, to = x.From, min(x.To, to)
		}
		if err := o.Cover(t, rec.Data[from:to], rec.Off+int64(from)); err != nil {
			return nil, err
		}
	}
	return o, nil
}
