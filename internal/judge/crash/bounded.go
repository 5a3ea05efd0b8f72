package crash

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	gopath "path"
	"slices"
	"strings"
	"sync"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
	"btrlab/internal/script"
)

// Bounded black-box testing, as in CrashMonkey and ACE (Mohan et al., OSDI 2018): every sequence of
// a few operations over a few files, with every choice of sync, fsync, fdatasync or nothing after
// each. The bounds are those that ACE documents for seq-1 and seq-2: files foo and A/foo, as second
// names bar and A/bar, directories A and B; what is synced after an operation is a file of the
// sequence so far, its neighbour or its directory; something is synced after the last one.
// Differences: no write by mmap, which this program does not have; remove is unlink, for ACE calls
// it for files only; after the first operation of two fdatasync is left out, as it is there by
// default.

// step is one operation of a sequence, as btrlab sh has it.
type step struct {
	script.Line
	files []string // that it names
	needs []string // files that must be there before, or directories with a slash at the end
	gone  []string // names that must not be there
}

var (
	firstFiles  = []string{"/foo", "/A/foo"}
	secondFiles = []string{"/bar", "/A/bar"}
)

// A file that a sequence needs has 16 KiB, written but not synced.
const fileSize = 16 << 10

// ranges are ACE's: at the end, inside and not at block boundaries, over the end.
var ranges = []struct {
	name   string
	off, n int64
}{{"append", fileSize, 4 << 10}, {"inside", 8000, 4096}, {"over the end", fileSize - 2000, 4096}}

// steps are all operations of a sequence.
func steps() []step {
	var l []step
	add := func(files, needs, gone []string, format string, args ...any) {
		l = append(l, step{script.MustParse(fmt.Sprintf(format, args...)), files, needs, gone})
	}
	for _, p := range firstFiles {
		add([]string{p}, nil, []string{p}, "touch %s", p)
	}
	add([]string{"/A/"}, nil, []string{"/A/"}, "mkdir /A")
	for _, p := range firstFiles {
		has := func(format string, args ...any) {
			add([]string{p}, []string{p}, nil, "%s %s", fmt.Sprintf(format, args...), p)
		}
		for _, mode := range []string{"--zero-range ", "--zero-range --keep-size ", "--punch-hole ", "--keep-size ", ""} {
			for _, r := range ranges {
				has("fallocate %s--offset %d --length %d", mode, r.off, r.n)
			}
		}
		for i, r := range ranges {
			has("write --data %c --offset %d --length %d", 'r'+i, r.off, r.n)
		}
		for i, off := range []int64{fileSize, 8 << 10} {
			has("write --direct --data %c --offset %d --length 4096", 'u'+i, off)
		}
		for _, size := range []int64{4096, 2500} {
			has("truncate --size %d", size)
		}
		has("setxattr user.a value")
		add([]string{p}, []string{p, "user.a " + p}, nil, "removexattr user.a %s", p)
	}
	for _, old := range slices.Concat(firstFiles, secondFiles) {
		for _, name := range secondFiles {
			if old == name {
				continue
			}
			add([]string{old, name}, []string{old}, []string{name}, "ln %s %s", old, name)
			add([]string{old, name}, []string{old}, []string{name}, "ln -s %s %s", old, name)
			add([]string{old, name}, []string{old}, nil, "mv %s %s", old, name)
		}
		add([]string{old}, []string{old}, nil, "rm %s", old)
	}
	add([]string{"/A/", "/B/"}, []string{"/A/"}, []string{"/B/"}, "mv /A /B")
	return l
}

// sync is the sync after a step: "" is none.
type syncing struct{ verb, path string }

func (s syncing) String() string { return strings.TrimSpace(s.verb + " " + s.path) }

// synced are what may be synced after s: for each file that it names the file, its directory and
// its neighbour.
func (s *step) synced() (paths []string) {
	for _, f := range s.files {
		p := gopath.Clean(f)
		dir, base := gopath.Split(p)
		paths = append(paths, p, gopath.Clean(dir))
		if other, ok := map[string]string{"foo": "bar", "bar": "foo", "A": "B", "B": "A"}[base]; ok {
			paths = append(paths, gopath.Join(dir, other))
		}
	}
	return paths
}

func isFile(path string) bool {
	b := gopath.Base(path)
	return b == "foo" || b == "bar"
}

// syncings are the choices after the steps so far.
func syncings(done []step, datasync, nothing bool) []syncing {
	var paths []string
	for _, s := range done {
		for _, p := range s.synced() {
			if !slices.Contains(paths, p) {
				paths = append(paths, p)
			}
		}
	}
	l := []syncing{{"sync", ""}}
	for _, p := range paths {
		l = append(l, syncing{"fsync", p})
		if datasync && isFile(p) {
			l = append(l, syncing{"fdatasync", p})
		}
	}
	if nothing {
		l = append(l, syncing{})
	}
	return l
}

// Sequence is one workload of Bounded.
type Sequence struct {
	steps []step
	syncs []syncing
}

// Script is the sequence in the language of btrlab sh, without what it needs to begin.
func (q *Sequence) Script() string {
	var l []string
	for i, s := range q.steps {
		l = append(l, s.Text)
		if q.syncs[i].verb != "" {
			l = append(l, q.syncs[i].String())
		}
	}
	return strings.Join(l, "; ")
}

// Lines are the whole workload, a line of script each: what the sequence needs to begin, and its
// operations and syncs.
func (q *Sequence) Lines() (list []string) {
	// A list of lines cannot fail.
	_ = q.prepare(func(l script.Line) error { list = append(list, l.Text); return nil })
	for i, s := range q.steps {
		list = append(list, s.Text)
		if q.syncs[i].verb != "" {
			list = append(list, q.syncs[i].String())
		}
	}
	return list
}

// Space is all sequences of length operations, each with every choice of syncs, in a fixed order:
// by the first step, then by what is synced after it, then by the second step, and so on. How many
// ways there are to go on after some steps depends on the paths only that may be synced after them,
// so a sequence is found by its number without those before it.
type Space struct {
	length int
	steps  []step
	paths  []uint32 // of each step, a bit for each path that may be synced after it
	files  uint32   // those paths that are files
	ways   map[ahead]int
}

// ahead is a point in a sequence: so many steps are left, after steps with these paths.
type ahead struct {
	left  int
	paths uint32
}

// NewSpace is the space of the sequences of a length of at least 1.
func NewSpace(length int) *Space {
	p := &Space{length: length, steps: steps(), ways: map[ahead]int{}}
	bit := map[string]uint32{}
	for i := range p.steps {
		var of uint32
		for _, path := range p.steps[i].synced() {
			if bit[path] == 0 {
				if bit[path] = 1 << len(bit); isFile(path) {
					p.files |= bit[path]
				}
			}
			of |= bit[path]
		}
		p.paths = append(p.paths, of)
	}
	p.Len() // fills ways, so that several tasks may ask for sequences
	return p
}

// Len is the number of sequences.
func (p *Space) Len() int { return p.rest(ahead{p.length, 0}) }

// rest is how many ways there are to go on from a.
func (p *Space) rest(a ahead) int {
	if a.left == 0 {
		return 1
	}
	n, ok := p.ways[a]
	if !ok {
		for i := range p.steps {
			next := ahead{a.left - 1, a.paths | p.paths[i]}
			n += p.choices(next) * p.rest(next)
		}
		p.ways[a] = n
	}
	return n
}

// choices is how many syncings there are after the last step before a.
func (p *Space) choices(a ahead) int {
	if a.left > 0 {
		return 1 + bits.OnesCount32(a.paths) + 1 // sync, an fsync each, nothing
	}
	return 1 + bits.OnesCount32(a.paths) + bits.OnesCount32(a.paths&p.files)
}

// At is sequence n, from 0.
func (p *Space) At(n int) *Sequence {
	q := &Sequence{}
	for at := (ahead{p.length, 0}); at.left > 0; {
		for i, s := range p.steps {
			next := ahead{at.left - 1, at.paths | p.paths[i]}
			each := p.rest(next)
			if all := p.choices(next) * each; n >= all {
				n -= all
				continue
			}
			q.steps = append(q.steps, s)
			q.syncs = append(q.syncs, syncings(q.steps, next.left == 0, next.left > 0)[n/each])
			n, at = n%each, next
			break
		}
	}
	return q
}

// Sampled are so many sequences of length operations, drawn by seed.
func Sampled(length, sample int, seed uint64) []*Sequence {
	rng := rand.New(rand.NewPCG(seed, uint64(length)))
	all := steps()
	l := make([]*Sequence, sample)
	for n := range l {
		q := &Sequence{}
		for i := range length {
			q.steps = append(q.steps, all[rng.IntN(len(all))])
			c := syncings(q.steps, true, i+1 < length)
			q.syncs = append(q.syncs, c[rng.IntN(len(c))])
		}
		l[n] = q
	}
	return l
}

// Bounded are the sequences of length operations, each with every choice of syncs. Sequences of one
// and two are whole; of three, sample random ones are taken, by seed.
func Bounded(length, sample int, seed uint64, each func(q *Sequence) bool) {
	if length > 2 {
		for _, q := range Sampled(length, sample, seed) {
			if !each(q) {
				return
			}
		}
		return
	}
	p := NewSpace(length)
	for n := range p.Len() {
		if !each(p.At(n)) {
			return
		}
	}
}

// Run runs the sequence on the image on base and judges the crash after its last persistence point:
// those after earlier ones are other sequences' last. It returns the loss, if there is one, the
// recording, and how many states were judged.
func (q *Sequence) Run(t *sched.Task, base blockdev.Device, o Options) (found *Counterexample, rec *Recording, states int, err error) {
	r, err := NewRecorder(t, []blockdev.Device{base}, o)
	if err != nil {
		return nil, nil, 0, err
	}
	run := func(op Op, do func() error) error {
		err := r.Do(t, op, do)
		var e errno.Errno
		var none script.NoAttribute
		if errors.As(err, &e) || errors.As(err, &none) {
			return nil // a sequence may ask for what cannot be: that is an operation as well
		}
		return err
	}
	do := func(l script.Line) error {
		return run(Op{Text: l.Text}, func() error { return l.Run(t, r.FS) })
	}
	err = q.prepare(do)
	from := 0
	for i, s := range q.steps {
		if err != nil {
			break
		}
		from = len(r.rec.Ops)
		err = do(s.Line)
		if y := q.syncs[i]; err == nil && y.verb != "" {
			op := Op{Text: y.String(), Promise: PromiseOf(y.verb), Path: y.path}
			err = run(op, func() error { return Sync(t, r.FS, y.path) })
		}
	}
	if err != nil {
		r.Close(t)
		return nil, nil, 0, fmt.Errorf("%s: %w", q.Script(), err)
	}
	if rec, err = r.End(t); err != nil {
		return nil, nil, 0, err
	}
	for _, s := range rec.States(Choice{From: from, Points: true}) {
		states++
		loss, err := rec.Judge(t, s)
		if err != nil {
			return nil, nil, states, err
		}
		if loss != nil {
			return &Counterexample{s, loss}, rec, states, nil
		}
	}
	return nil, rec, states, nil
}

// Sync syncs the file or directory at path, or with "" everything.
func Sync(t *sched.Task, f *fs.FS, path string) error {
	if path == "" {
		return f.Sync(t)
	}
	return f.Fsync(t, path)
}

// prepare makes what the steps need and no step before makes. It is part of the workload, and not
// synced.
func (q *Sequence) prepare(do func(l script.Line) error) error {
	there := map[string]bool{"/": true} // before the steps
	now := map[string]bool{}            // after the steps so far: true made, false gone
	need := func(p string) error {
		if there[p] {
			return nil
		}
		there[p] = true
		var lines []string
		if attr, file, ok := strings.Cut(p, " "); ok {
			lines = []string{"setxattr " + attr + " value " + file}
		} else if strings.HasSuffix(p, "/") {
			lines = []string{"mkdir " + gopath.Clean(p)}
		} else {
			lines = []string{"touch " + p, fmt.Sprintf("write --data q --length %d %s", fileSize, p)}
		}
		for _, l := range lines {
			if err := do(script.MustParse(l)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, s := range q.steps {
		for _, p := range slices.Concat(s.needs, s.files) {
			if _, known := now[p]; known {
				continue
			}
			file := p
			if _, f, ok := strings.Cut(p, " "); ok {
				file = f
			}
			if dir := gopath.Dir(gopath.Clean(file)); dir != "/" && !now[dir+"/"] {
				if err := need(dir + "/"); err != nil {
					return err
				}
			}
			if slices.Contains(s.needs, p) {
				if err := need(p); err != nil {
					return err
				}
			}
		}
		for _, f := range s.files {
			now[f] = true
		}
	}
	return nil
}

// Tally counts the sequences of a bounded run.
type Tally struct {
	Sequences int // that were run
	States    int // crash states that were judged
	Found     *Counterexample
	Of        *Sequence // the one with the loss
	Recording *Recording
}

// Bounds says which sequences RunBounded runs.
type Bounds struct {
	Length   int
	Sample   int // sequences of three
	Seed     uint64
	Jobs     int // tasks, at least 1
	Stop     func() bool
	Progress func(done int) // called from any task
}

// RunBounded runs the sequences on several tasks, until one loses something or Stop, if there is
// one, says so.
func RunBounded(t *sched.Task, base blockdev.Device, o Options, b Bounds) (Tally, error) {
	var mu sync.Mutex
	var sum Tally
	var failed error
	work := make(chan *Sequence, 64)
	run := func(t *sched.Task) {
		for q := range work {
			c, rec, states, err := q.Run(t, base, o)
			mu.Lock()
			sum.Sequences++
			sum.States += states
			n := sum.Sequences
			if err != nil && failed == nil {
				failed = err
			}
			if c != nil && sum.Found == nil {
				sum.Found, sum.Of, sum.Recording = c, q, rec
			}
			mu.Unlock()
			if b.Progress != nil {
				b.Progress(n)
			}
		}
	}
	var tasks []*sched.Task
	for range b.Jobs {
		tasks = append(tasks, t.Go("crash", run))
	}
	Bounded(b.Length, b.Sample, b.Seed, func(q *Sequence) bool {
		mu.Lock()
		over := failed != nil || sum.Found != nil || b.Stop != nil && b.Stop()
		mu.Unlock()
		if over {
			return false
		}
		work <- q
		return true
	})
	close(work)
	for _, x := range tasks {
		t.Join(x)
	}
	return sum, failed
}
