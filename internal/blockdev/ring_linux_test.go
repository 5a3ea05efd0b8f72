//go:build !portable

package blockdev

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/hostio"
	"btrlab/internal/lock"
	"btrlab/internal/sched"
)

// ended counts bios and lets a task wait for all of them.
type ended struct {
	n    atomic.Int64
	bad  atomic.Int64
	left lock.Counter
}

func (e *ended) bio(k *sched.Task, op Op, p []byte, off int64) *Bio {
	e.left.Inc(k)
	return &Bio{Op: op, Off: off, Vecs: [][]byte{p}, EndIO: func(t *sched.Task, b *Bio) {
		if b.Err != nil {
			e.bad.Add(1)
		}
		e.n.Add(1)
		e.left.Dec(t)
	}}
}

// flood writes every block of a device by several tasks, each with more bios in flight than the
// ring has slots, and reads them back. Every bio ends once, with its own bytes, in memory that is
// aligned or not.
func flood(t *testing.T, d Device) {
	const block, per, tasks = 4096, ringDepth + 100, 3
	k := sched.NewTask("test")
	var e ended
	e.left.Init(WaitClass)
	var all []*sched.Task
	for i := range tasks {
		all = append(all, k.Go(fmt.Sprint("writer ", i), func(k *sched.Task) {
			for j := range per {
				at := i*per + j
				p := hostio.Aligned(block + 1)[j%2:][:block]
				copy(p, bytes.Repeat([]byte{byte(at), byte(at >> 8)}, block/2))
				d.Submit(k, e.bio(k, OpWrite, p, int64(at)*block))
			}
		}))
	}
	for _, c := range all {
		k.Join(c)
	}
	e.left.WaitZero(k)
	if err := Flush(k, d); err != nil {
		t.Fatal(err)
	}
	bufs := make([][]byte, tasks*per)
	for at := range bufs {
		bufs[at] = hostio.Aligned(block + 1)[at%2:][:block]
		d.Submit(k, e.bio(k, OpRead, bufs[at], int64(at)*block))
	}
	e.left.WaitZero(k)
	if e.n.Load() != 2*tasks*per || e.bad.Load() != 0 {
		t.Errorf("%d bios ended, %d with an error, want %d and 0", e.n.Load(), e.bad.Load(), 2*tasks*per)
	}
	for at, p := range bufs {
		if !bytes.Equal(p, bytes.Repeat([]byte{byte(at), byte(at >> 8)}, block/2)) {
			t.Fatalf("block %d: have %d %d, want %d %d", at, p[0], p[1], byte(at), byte(at>>8))
		}
	}
}

func TestRingFull(t *testing.T) {
	for _, flags := range []Flags{Ring, Ring | Direct} {
		d := reopened(t, 16<<20, flags)
		flood(t, d)
		d.Close()
	}
}

// Where the machine forbids io_uring each transfer has a task of its own, and Submit does not wait
// for it: the submitter holds a lock that the end of its bio needs.
func TestNoRing(t *testing.T) {
	d := reopened(t, 16<<20, Ring|Direct).(*File)
	d.stop()
	d.spawns = true
	flood(t, d)
	k := sched.NewTask("test")
	var mu lock.Mutex
	var done lock.Counter
	done.Init(WaitClass)
	done.Inc(k)
	mu.Lock(k)
	d.Submit(k, &Bio{Op: OpWrite, Vecs: [][]byte{make([]byte, 4096)}, EndIO: func(t *sched.Task, b *Bio) {
		mu.Lock(t)
		mu.Unlock(t) // that it can be had is what is tested
		done.Dec(t)
	}})
	mu.Unlock(k)
	done.WaitZero(k)
	d.Close()
}

// A device that has gone answers each bio with its error, and Close ends a ring that was used and
// one that was not.
func TestRingFails(t *testing.T) {
	reopened(t, 1<<20, Ring).Close()
	k := sched.NewTask("test")
	d := reopened(t, 1<<20, Ring).(*File)
	if err := Write(k, d, make([]byte, 4096), 0); err != nil {
		t.Fatal(err)
	}
	fd := d.fd
	d.fd = -1
	for _, err := range []error{Write(k, d, make([]byte, 4096), 0), Flush(k, d)} {
		if !errors.Is(err, errno.EBADF) || !strings.Contains(err.Error(), d.name) {
			t.Errorf("have %v, want EBADF with the name of the device", err)
		}
	}
	d.fd = fd
	d.flags |= ReadOnly
	if err := errors.Join(Flush(k, d), Write(k, d, make([]byte, 4096), 0)); !errors.Is(err, errno.EROFS) || strings.Contains(err.Error(), "flush") {
		t.Errorf("read-only: have %v, want EROFS for the write alone", err)
	}
	d.Close()
}

// One task at a time waits for bios of its own, which it ends itself, on one processor and on two;
// and the device is closed as soon as the last bio has ended, which may be before its Submit has
// returned.
func TestRingAlone(t *testing.T) {
	for _, procs := range []int{1, 2} {
		t.Run(fmt.Sprint(procs), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			for range 20 {
				d := reopened(t, 1<<20, Ring|Direct)
				k := sched.NewTask("test")
				var last lock.Counter
				last.Init(WaitClass)
				last.Inc(k)
				k.Go("submitter", func(k *sched.Task) {
					p := hostio.Aligned(4096)
					for i := range int64(200) {
						if err := Write(k, d, p, i*4096); err != nil {
							t.Error(err)
						}
						var e ended
						e.left.Init(WaitClass)
						for j := range i % 5 {
							d.Submit(k, e.bio(k, OpRead, hostio.Aligned(4096), j*4096))
						}
						e.left.WaitZero(k)
					}
					d.Submit(k, &Bio{Op: OpRead, Vecs: [][]byte{p}, EndIO: func(t *sched.Task, _ *Bio) { last.Dec(t) }})
				})
				last.WaitZero(k)
				d.Close()
			}
		})
	}
}

// A task sleeps in the kernel for a bio that does not end, a read of a pipe, and something else
// wakes it.
func TestRingWokenByOther(t *testing.T) {
	d := reopened(t, 1<<20, Ring).(*File)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fd := d.fd
	d.fd = int(r.Fd())
	k := sched.NewTask("test")
	var e ended
	e.left.Init(WaitClass)
	for range 100 {
		var other lock.Counter
		other.Init(WaitClass)
		other.Inc(k)
		d.Submit(k, e.bio(k, OpRead, make([]byte, 1), 0))
		k.Go("waker", func(k *sched.Task) { other.Dec(k) })
		other.WaitZero(k)
		if _, err := w.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		e.left.WaitZero(k)
	}
	w.Close()
	d.fd = fd
	d.Close()
}

// The same on a loop device: a block device takes sectors, and O_DIRECT in earnest.
func TestRingOnLoop(t *testing.T) {
	onLoop(t)
	path := filepath.Join(t.TempDir(), "img")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 64<<20); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "-f", "--show", path).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v %s", err, out)
	}
	loop := strings.TrimSpace(string(out))
	defer exec.Command("losetup", "-d", loop).Run()
	for _, flags := range []Flags{Ring, Direct, Ring | Direct} {
		d, err := Open(loop, flags)
		if err != nil {
			t.Fatal(err)
		}
		flood(t, d)
		d.Close()
	}
}

// A bio in flight allocates nothing of its own.
func BenchmarkRingWrite4K(b *testing.B) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	for name, flags := range map[string]Flags{"sync": Direct, "ring": Ring | Direct} {
		b.Run(name, func(b *testing.B) {
			d := reopened(b, 64<<20, flags)
			defer d.Close()
			k := sched.NewTask("bench")
			p := hostio.Aligned(4096)
			var left lock.Counter
			left.Init(WaitClass)
			var bios [32]Bio
			end := func(t *sched.Task, b *Bio) { left.Dec(t) }
			b.ReportAllocs()
			b.SetBytes(4096)
			for i := 0; b.Loop(); i++ {
				if i%len(bios) == 0 {
					left.WaitZero(k)
				}
				o := &bios[i%len(bios)]
				*o = Bio{Op: OpWrite, Off: int64(i&16383) * 4096, Vecs: o.Vecs, EndIO: end}
				if o.Vecs == nil {
					o.Vecs = [][]byte{p}
				}
				left.Inc(k)
				d.Submit(k, o)
			}
			left.WaitZero(k)
		})
	}
}
