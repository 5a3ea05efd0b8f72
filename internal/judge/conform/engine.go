package conform

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
)

// recorder notes the steps between the start and the end of the
// operation.
type recorder struct {
	caller *sched.Task
	on     bool
	events []Event
	sizes  []sched.TraceEvent // i_size_write that no step has shown yet: see sights
	plan   []string           // the steps of plans, with the kind before each
}

func (r *recorder) trace(t *sched.Task, e sched.TraceEvent) {
	if !r.on {
		return
	}
	lane := Elsewhere
	if t == r.caller {
		lane = Caller
	}
	switch {
	case e.Name == "plan_step":
		r.plan = append(r.plan, e.What)
		return
	case e.Name == "i_size_write":
		if lane == Caller {
			r.sizes = append(r.sizes[:0], e)
		}
		return
	case lane == Caller && sights[e.Name] && e.What != "dir":
		r.flushSizes()
	}
	r.add(lane, e)
}

func (r *recorder) add(lane Lane, e sched.TraceEvent) {
	if ev, ok := abstract(lane, e); ok {
		r.events = append(r.events, ev)
	}
}

// flushSizes tells the last i_size that nothing has shown yet.
func (r *recorder) flushSizes() {
	for _, e := range r.sizes {
		r.add(Caller, e)
	}
	r.sizes = r.sizes[:0]
}

// engine is the machine of ours.
type engine struct {
	t     *sched.Task
	fs    *fs.FS
	files map[string]*fs.File
	bare  bool // new files have no checksums

	told *recorder // is given the answers
}

// runEngine runs an operation on a copy of the image in virtual time, over a device that ends its
// requests after a millisecond: the same steps every time.
func runEngine(image *blockdev.Memory, op *Op, pol string) (events []Event, err error) {
	events, _, err = runTold(image, op, pol)
	return events, err
}

// runTold is runEngine with the steps of plans, in the order in which they were taken.
func runTold(image *blockdev.Memory, op *Op, pol string) (events []Event, plan []string, err error) {
	r := &recorder{}
	_, verr := vtime.Run(vtime.Machine{CPUs: 2}, func(t *sched.Task) {
		r.caller = t
		err = engineSteps(t, image.Snapshot(), op, pol, r)
	})
	return r.events, r.plan, errors.Join(err, verr)
}

func engineSteps(t *sched.Task, image *blockdev.Memory, op *Op, name string, r *recorder) (err error) {
	p, err := dm.Parse("delay:jitter=0")
	if err != nil {
		return err
	}
	t.SetTracer(r.trace)
	dev := dm.New(t, image, p)
	defer func() { err = errors.Join(err, dev.Close()) }()
	pol, err := policy.Parse(name)
	if err != nil {
		return err
	}
	x, err := fs.Open(t, []blockdev.Device{dev}, fs.Options{Policy: &pol, EndioWorkers: 1})
	if err != nil {
		return err
	}
	m := &engine{t: t, fs: x, files: map[string]*fs.File{}, told: r}
	defer func() { err = errors.Join(err, m.end()) }()
	if err := setUp(m, op); err != nil {
		return err
	}
	t.Sleep(time.Second)
	r.on = true
	err = script(m, op.Do)
	t.Sleep(time.Second) // what the operation began elsewhere
	r.on = false
	return err
}

func (m *engine) end() error {
	var errs []error
	for _, f := range m.files {
		errs = append(errs, f.Close(m.t))
	}
	return errors.Join(append(errs, m.fs.Close(m.t))...)
}

// open gives the file, which stays open.
func (m *engine) open(name string) (*fs.File, error) {
	if f := m.files[name]; f != nil {
		return f, nil
	}
	f, err := m.fs.OpenFile(m.t, "/"+name, fs.O_RDWR, 0)
	if err == nil {
		m.files[name] = f
	}
	return f, err
}

func (m *engine) on(name string, do func(f *fs.File) error) error {
	f, err := m.open(name)
	if err != nil {
		return err
	}
	return do(f)
}

func (m *engine) create(name string) error {
	f, err := m.fs.Create(m.t, "/"+name, 0o644)
	if err == nil {
		m.files[name] = f
		if m.bare {
			f.Inode().AddFlags(format.InodeNoDataSum)
			f.Inode().MarkDirty(m.t)
		}
	}
	return err
}

// nosum is the kernel's mount option nodatasum.
func (m *engine) nosum() error { m.bare = true; return nil }

func (m *engine) write(name string, off, n int64, how kiocb.Flags) error {
	return m.on(name, func(f *fs.File) error {
		_, err := f.WriteIter(m.t, kiocb.Request{Pos: uint64(off), Flags: how}, iopath.Source{Buf: content(n)})
		return err
	})
}

// answer is told last: a size that no step has shown is none of a call that has ended.
func (m *engine) answer(what string) {
	m.told.trace(m.t, sched.TraceEvent{Name: short(answered), What: what})
}

func (m *engine) read(name string, off, n int64, how kiocb.Flags) error {
	return m.on(name, func(f *fs.File) error {
		_, err := f.ReadIter(m.t, kiocb.Request{Pos: uint64(off), Flags: how}, make([]byte, n))
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return err
	})
}

// fault reads a byte: the engine maps no files, and a fault of Linux reads the page the same way.
func (m *engine) fault(name string, off int64) error { return m.read(name, off, 1, 0) }

// store writes a byte: the engine maps no files, so a store is a buffered write.
func (m *engine) store(name string, off int64) error { return m.write(name, off, 1, 0) }

func (m *engine) truncate(name string, size int64) error {
	return m.on(name, func(f *fs.File) error { return f.Truncate(m.t, size) })
}

func (m *engine) fallocate(name string, mode uint32, off, n int64) error {
	return m.on(name, func(f *fs.File) error { return f.Fallocate(m.t, mode, off, n) })
}

func (m *engine) fsync(name string) error {
	if f := m.files[name]; f != nil {
		return f.Fsync(m.t)
	}
	return m.fs.Fsync(m.t, "/"+strings.TrimPrefix(name, "."))
}

func (m *engine) sync() error { return m.fs.Sync(m.t) }

func (m *engine) start(name string) error {
	return m.on(name, func(f *fs.File) error { return m.fs.Flush(m.t, f) })
}

func (m *engine) drop(name string) error {
	return m.on(name, func(f *fs.File) error { f.DropCache(m.t, 0, 1<<40); return nil })
}

func (m *engine) nocow(name string) error {
	return m.on(name, func(f *fs.File) error {
		return f.SetFlags(m.t, f.Flags()|format.InodeNoDataCow|format.InodeNoDataSum)
	})
}

func (m *engine) close(name string) error {
	f := m.files[name]
	delete(m.files, name)
	if f == nil {
		return nil
	}
	return f.Close(m.t)
}

func (m *engine) mkdir(name string) error           { return m.fs.Mkdir(m.t, "/"+name, 0o755) }
func (m *engine) rmdir(name string) error           { return m.fs.Rmdir(m.t, "/"+name) }
func (m *engine) link(old, name string) error       { return m.fs.Link(m.t, "/"+old, "/"+name) }
func (m *engine) unlink(name string) error          { return m.fs.Unlink(m.t, "/"+name) }
func (m *engine) rename(old, name string) error     { return m.fs.Rename(m.t, "/"+old, "/"+name) }
func (m *engine) symlink(target, name string) error { return m.fs.Symlink(m.t, target, "/"+name) }
func (m *engine) snapshot(name string) error        { return m.fs.Snapshot(m.t, "/", "/"+name, false) }
func (m *engine) chmod(name string) error           { return m.fs.Chmod(m.t, "/"+name, 0o600) }

func (m *engine) setxattr(name string) error {
	return m.fs.Setxattr(m.t, "/"+name, "user.k", []byte("value"))
}

func (m *engine) reflink(src, name string) error {
	return m.on(src, func(from *fs.File) error {
		return m.on(name, func(to *fs.File) error { return to.ReflinkAll(m.t, from) })
	})
}

func (m *engine) fill(name string) error {
	return m.on(name, func(f *fs.File) error {
		return fill(func(off, n int64) error { return f.Fallocate(m.t, 0, off, n) })
	})
}

// fill allocates until not even a block is left.
func fill(alloc func(off, n int64) error) error {
	off := int64(0)
	for n := int64(8 << 20); n >= format.SectorSize; {
		if err := alloc(off, n); err != nil {
			n /= 2
			continue
		}
		off += n
	}
	if off == 0 {
		return fmt.Errorf("fill: no space at all")
	}
	return nil
}

// content is n bytes that do not compress and are no zeros.
func content(n int64) []byte {
	p := make([]byte, n)
	x := uint32(2463534242)
	for i := range p {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		p[i] = byte(x)
	}
	return p
}
