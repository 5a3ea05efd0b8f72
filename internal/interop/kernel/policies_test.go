package kernel

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	btrfs "btrlab/internal/fs"
	"btrlab/internal/interop"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/need"
	"btrlab/internal/uring"
)

var policiesRuntime = flag.Duration("policies.runtime", 0, "how long TestNowaitPolicies writes under each policy; 0 is a sample")

// nowaitPolicies are the presets of NOWAIT and of sectors, and some of them without logs of fsync.
func nowaitPolicies() []string {
	all := append(policy.NowaitNames(), policy.UnalignedNames()...)
	return append(all, "nowait-6.1!FSYNC_LOG", "nowait-strict!FSYNC_LOG", "modern!FSYNC_LOG", "unaligned-check-first!FSYNC_LOG")
}

// The ways in of a task of TestNowaitPolicies.
const (
	wayBuffered = iota
	wayNowait
	wayDirect
	wayQueued
	wayDurable
	waySector
	wayNowaitDirect
	wayRing
	wayRingDirect
	wayAppend
	wayPunch
	wayFsync
	wayRead
	wayReadDirect
	mixWays
)

var wayNames = [mixWays]string{
	"buffered", "NOWAIT", "direct", "queued", "DSYNC", "sectors", "NOWAIT direct", "ring", "ring direct", "appends", "punches", "fsyncs", "reads", "direct reads",
}

// The files that all tasks of TestNowaitPolicies write. A block belongs to one task; in the last
// file each block has sectors of all tasks.
const (
	mixTasks  = 4
	mixBlocks = 64 // of each task
	sector    = 512
)

// TestNowaitPolicies: tasks write the same files in every way there is, each its own bytes of them:
// through the page cache and past it, waited for and queued, with NOWAIT, durable, in sectors,
// through rings. Linux accepts the image and reads the bytes. Under make interop a sample; make
// bench gives each policy 30 s.
func TestNowaitPolicies(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	runtime := *policiesRuntime
	if runtime == 0 {
		runtime = interop.Pick(1500*time.Millisecond, 50*time.Millisecond)
	}
	for _, name := range nowaitPolicies() {
		t.Run(name, func(t *testing.T) {
			img := interop.Image(t, "img")
			want := mix(t, img, name, runtime)
			interop.Judged(t, img)
			interop.Mounted(t, img, "", func(dir string) {
				readsBack(t, dir, want)
				interop.Scrubbed(t, dir)
				interop.Write(t, filepath.Join(dir, "linux"), interop.NewFiller(1).Bytes(3<<20))
			})
			interop.Judged(t, img)
		})
	}
}

// readsBack wants the files in dir to have these bytes.
func readsBack(t *testing.T, dir string, want map[string][]byte) {
	t.Helper()
	for path, data := range want {
		got, err := os.ReadFile(dir + path)
		interop.Must(t, err)
		if !bytes.Equal(got, data) {
			at := 0
			for at < min(len(got), len(data)) && got[at] == data[at] {
				at++
			}
			t.Errorf("%s: Linux reads %d bytes want %d, first other byte %d", path, len(got), len(data), at)
		}
	}
}

// mixer is a task of TestNowaitPolicies.
type mixer struct {
	t      *sched.Task
	num    int
	r      *rand.Rand
	f      *interop.Filler
	files  []*btrfs.File
	want   [][]byte // of files; only this task's parts are its own
	own    *btrfs.File
	grown  []byte // of own
	ring   *uring.Ring
	rounds int // each is all ways once
	again  int // requests that went on without NOWAIT
}

// mix makes an image, runs the tasks on it, and returns the bytes that the files must have.
func mix(t *testing.T, img, pol string, runtime time.Duration) map[string][]byte {
	dev, err := blockdev.Create(img, 512<<20)
	interop.Must(t, err)
	tk := sched.NewTask(t.Name())
	interop.Must(t, mkfs.Make(tk, dev, mkfs.Options{}))
	x, err := btrfs.Open(tk, []blockdev.Device{dev}, btrfs.Options{Policy: policy.MustParse(pol), CheckQuiescence: true})
	interop.Must(t, err)

	const size = mixTasks * mixBlocks * format.SectorSize
	var files []*btrfs.File
	var want [][]byte
	for i, flags := range []uint64{0, format.InodeNoDataCow, format.InodeNoDataCow, format.InodeNoDataCow} {
		f, err := x.Create(tk, fmt.Sprintf("/f%d", i), 0o644)
		interop.Must(t, err)
		interop.Must(t, f.SetFlags(tk, flags))
		data := make([]byte, size)
		if i == 1 {
			copy(data, interop.NewFiller(1).Bytes(size))
			_, err := f.WriteAt(tk, data, 0)
			interop.Must(t, err)
		} else {
			interop.Must(t, f.Fallocate(tk, 0, 0, size))
		}
		interop.Must(t, f.Fsync(tk))
		files, want = append(files, f), append(want, data)
	}
	var mixers []*mixer
	var tasks []*sched.Task
	errs := make(chan error, mixTasks)
	for i := range mixTasks {
		own, err := x.Create(tk, fmt.Sprintf("/g%d", i), 0o644)
		interop.Must(t, err)
		if i%2 == 0 {
			interop.Must(t, own.SetFlags(tk, format.InodeNoDataCow))
		}
		m := &mixer{num: i, r: rand.New(rand.NewPCG(uint64(i), 9)), f: interop.NewFiller(uint64(i)), files: files, want: want, own: own}
		mixers = append(mixers, m)
		tasks = append(tasks, tk.Go("writer", func(t *sched.Task) { errs <- m.run(t, runtime) }))
	}
	for _, task := range tasks {
		tk.Join(task)
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	rounds, again, all := 0, 0, map[string][]byte{}
	for i, m := range mixers {
		rounds, again = rounds+m.rounds, again+m.again
		all[fmt.Sprintf("/g%d", i)] = m.grown
		interop.Must(t, m.own.Close(tk))
	}
	for i, f := range files {
		all[fmt.Sprintf("/f%d", i)] = want[i]
		interop.Must(t, f.Close(tk))
	}
	t.Logf("%d rounds of %d ways, %d requests with NOWAIT went on without it", rounds, mixWays, again)
	interop.Must(t, x.Close(tk))
	interop.Must(t, dev.Close())
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// run goes through the ways, in random order, until the time is over.
func (m *mixer) run(t *sched.Task, runtime time.Duration) (err error) {
	m.t = t
	if m.ring, err = uring.New(t, uring.Config{Entries: 8}); err != nil {
		return err
	}
	defer m.ring.Close(t)
	for begun := time.Now(); m.rounds == 0 || time.Since(begun) < runtime; m.rounds++ {
		for _, w := range m.r.Perm(mixWays) {
			if err = m.step(w); err != nil {
				return fmt.Errorf("task %d, %s: %w", m.num, wayNames[w], err)
			}
		}
	}
	return nil
}

// part picks a file and bytes of it that are this task's: blocks, or with fine sectors of a block.
func (m *mixer) part(fine bool) (f *btrfs.File, pos uint64, p []byte) {
	i := m.r.IntN(len(m.files))
	block := m.r.IntN(mixBlocks)*mixTasks + m.num
	n, at := format.SectorSize, block*format.SectorSize
	if shared := i == len(m.files)-1; fine || shared {
		per := format.SectorSize / sector
		s := m.r.IntN(per)
		if shared {
			block, s = m.r.IntN(mixTasks*mixBlocks), m.r.IntN(per/mixTasks)*mixTasks+m.num
		}
		n, at = sector, block*format.SectorSize+s*sector
	}
	return m.files[i], uint64(at), m.want[i][at : at+n]
}

// fill gives p new bytes and returns a copy, which is written: p is compared with at any time.
func (m *mixer) fill(p []byte) []byte {
	m.f.R.Read(p)
	return bytes.Clone(p)
}

func (m *mixer) step(w int) error {
	f, pos, p := m.part(w == waySector)
	switch w {
	case wayBuffered:
		return m.write(f, pos, 0, m.fill(p))
	case wayNowait:
		return m.write(f, pos, kiocb.Nowait, m.fill(p))
	case wayDirect, waySector:
		return m.write(f, pos, kiocb.Direct, m.fill(p))
	case wayDurable:
		return m.write(f, pos, kiocb.Direct|kiocb.DSync, m.fill(p))
	case wayNowaitDirect:
		return m.write(f, pos, kiocb.Direct|kiocb.Nowait, m.fill(p))
	case wayQueued:
		done := make(told, 1)
		_, err := f.WriteIter(m.t, kiocb.Request{Pos: pos, Flags: kiocb.Direct, Done: done}, iopath.Source{Buf: m.fill(p)})
		if errors.Is(err, errno.EIOCBQUEUED) {
			err = <-done
		}
		return err
	case wayRing, wayRingDirect:
		return m.submit(w == wayRingDirect)
	case wayAppend:
		return m.grow()
	case wayPunch:
		// and preallocated again, so that blocks that are not written come up all the time
		clear(p)
		if err := f.Fallocate(m.t, btrfs.FALLOC_FL_PUNCH_HOLE|btrfs.FALLOC_FL_KEEP_SIZE, int64(pos), int64(len(p))); err != nil {
			return err
		}
		return f.Fallocate(m.t, 0, int64(pos), int64(len(p)))
	case wayFsync:
		return f.Fsync(m.t)
	case wayRead:
		return m.read(f, pos, 0, p)
	case wayReadDirect:
		return m.read(f, pos, kiocb.Direct, p)
	}
	panic(w)
}

// write is a write system call until all is written. It goes on without NOWAIT where the request
// would sleep, and where the kernel does not know such requests.
func (m *mixer) write(f *btrfs.File, pos uint64, flags kiocb.Flags, p []byte) error {
	for len(p) > 0 {
		n, err := f.WriteIter(m.t, kiocb.Request{Pos: pos, Flags: flags}, iopath.Source{Buf: p})
		if flags&kiocb.Nowait != 0 && (errors.Is(err, errno.EAGAIN) || errors.Is(err, errno.EOPNOTSUPP)) {
			m.again++
			flags, err = flags&^kiocb.Nowait, nil
		}
		if err != nil {
			return err
		}
		pos, p = pos+uint64(n), p[n:]
	}
	return nil
}

func (m *mixer) read(f *btrfs.File, pos uint64, flags kiocb.Flags, want []byte) error {
	have := make([]byte, len(want))
	if n, err := f.ReadIter(m.t, kiocb.Request{Pos: pos, Flags: flags}, have); err != nil || n != len(want) {
		return fmt.Errorf("bad read of %d at %d, have %d bytes want %d: %w", f.Ino(), pos, n, len(want), err)
	}
	if !bytes.Equal(have, want) {
		return fmt.Errorf("bad bytes of %d at %d, have %x want %x", f.Ino(), pos, have[:8], want[:8])
	}
	return nil
}

// submit gives the ring four writes of different places, and waits for them.
func (m *mixer) submit(direct bool) error {
	seen := map[*byte]bool{}
	n := 0
	for range 4 {
		f, pos, p := m.part(false)
		if seen[&p[0]] {
			continue // two requests of one place may come in any order
		}
		seen[&p[0]] = true
		n++
		e := m.ring.GetSQE()
		*e = uring.SQE{Op: uring.Write, File: f, Pos: pos, Buf: m.fill(p), UserData: uint64(len(p))}
		if direct {
			e.Flags = kiocb.Direct
		}
	}
	if _, err := m.ring.Submit(m.t); err != nil {
		return err
	}
	m.ring.Wait(m.t, n)
	done := make([]uring.CQE, 8)
	if have := m.ring.Reap(m.t, done); have != n {
		return fmt.Errorf("bad ring, have %d completions want %d", have, n)
	}
	for _, e := range done[:n] {
		if e.Err != nil || e.Res != int(e.UserData) {
			return fmt.Errorf("bad completion, have %d bytes want %d: %w", e.Res, e.UserData, e.Err)
		}
	}
	return nil
}

// grow appends to the task's own file, or cuts it when it has become long.
func (m *mixer) grow() error {
	if len(m.grown) > 1<<20 {
		m.grown = m.grown[:m.r.IntN(len(m.grown))]
		return m.own.Truncate(m.t, int64(len(m.grown)))
	}
	p := m.fill(make([]byte, 1+m.r.IntN(12000)))
	m.grown = append(m.grown, p...)
	return m.write(m.own, 0, kiocb.Append|kiocb.Nowait, p)
}
