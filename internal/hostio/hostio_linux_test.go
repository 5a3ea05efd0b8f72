//go:build !portable

package hostio

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func open(t testing.TB) *File {
	t.Helper()
	f, err := Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// queues runs f on each kind of queue. A machine may forbid io_uring to its users; then the
// kernel's word is shown.
func queues(t *testing.T, depth int, f func(t *testing.T, q Queue)) {
	for name, make := range map[string]func() (Queue, error){
		"io_uring": func() (Queue, error) { return NewRing(depth) },
		"libaio":   func() (Queue, error) { return NewAIO(depth) },
	} {
		t.Run(name, func(t *testing.T) {
			q, err := make()
			if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
				t.Skipf("NOT TESTED: the machine has no %s: %v", name, err)
			}
			if err != nil {
				t.Fatal(err)
			}
			f(t, q)
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Random writes and reads, many in flight, agree with an array: no completion is lost, none comes
// twice, each has the bytes of its request. Requests in flight do not overlap, as the kernel orders
// none of them.
func TestQueueAgreesWithModel(t *testing.T) {
	const depth, blocks, block, requests = 16, 64, 4096, 4000
	for _, direct := range []bool{false, true} {
		queues(t, depth, func(t *testing.T, q Queue) {
			f := open(t)
			fd, err := f.FD(direct)
			if err != nil {
				t.Skip(err)
			}
			model := make([]byte, blocks*block)
			if err := f.Truncate(int64(len(model))); err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(1, 2))
			type request struct {
				op  Op
				at  int
				buf []byte
			}
			var flying [depth]*request
			busy := map[int]bool{}
			idle := []uint32{}
			for i := range depth {
				idle = append(idle, uint32(i))
			}
			sent, ended := 0, 0
			for ended < requests {
				for sent < requests && len(idle) > 0 {
					at := r.IntN(blocks)
					if busy[at] {
						break
					}
					tag := idle[len(idle)-1]
					idle = idle[:len(idle)-1]
					k := &request{op: Op(r.IntN(2)), at: at, buf: Aligned(block)}
					if k.op == Write {
						for i := range k.buf {
							k.buf[i] = byte(sent + i)
						}
						copy(model[at*block:], k.buf)
					}
					if err := q.Prep(k.op, fd, k.buf, int64(at*block), 0, tag); err != nil {
						t.Fatal(err)
					}
					flying[tag], busy[at] = k, true
					sent++
				}
				if err := q.Enter(1); err != nil {
					t.Fatal(err)
				}
				for {
					tag, res, ok := q.Next()
					if !ok {
						break
					}
					k := flying[tag]
					if k == nil || res != block {
						t.Fatalf("completion of tag %d: have %d bytes want %d, request %+v", tag, res, block, k)
					}
					if !bytes.Equal(k.buf, model[k.at*block:(k.at+1)*block]) {
						t.Fatalf("op %d of block %d: not the bytes of the model", k.op, k.at)
					}
					flying[tag], busy[k.at] = nil, false
					idle = append(idle, tag)
					ended++
				}
			}
			have := make([]byte, len(model))
			if n, err := f.Transfer(Read, false, have, 0, 0); n != len(have) || err != nil || !bytes.Equal(have, model) {
				t.Errorf("read back: %d bytes, %v; not the model's", n, err)
			}
		})
	}
}

// A full queue says so, and gives room once a completion is taken. A request that fails is a
// completion with its errno, not an error of Enter.
func TestQueueFullAndFailed(t *testing.T) {
	queues(t, 2, func(t *testing.T, q Queue) {
		f := open(t)
		fd, _ := f.FD(false)
		p := make([]byte, 10)
		for tag := range uint32(2) {
			if err := q.Prep(Write, fd, p, 0, 0, tag); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.Prep(Write, fd, p, 0, 0, 0); !errors.Is(err, ErrFull) {
			t.Errorf("third request of two: have %v want %v", err, ErrFull)
		}
		if err := q.Enter(2); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, n, ok := q.Next(); !ok || n != 10 {
				t.Errorf("completion: have %d bytes, %v, want 10", n, ok)
			}
		}
		if _, _, ok := q.Next(); ok {
			t.Error("a third completion")
		}
		for tag, bad := range []int{-1, fd} { // one descriptor that is none, and one that is good
			if err := q.Prep(Sync, bad, nil, 0, 0, uint32(tag)); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.Enter(2); err != nil {
			t.Fatal(err)
		}
		have := map[uint32]int32{}
		for range 2 {
			tag, n, _ := q.Next()
			have[tag] = n
		}
		if have[0] != -int32(unix.EBADF) || have[1] != 0 {
			t.Errorf("have %v, want EBADF and 0", have)
		}
	})
}

// One task submits while another takes completions, as package blockdev has it: all come, in memory
// that the collector may move around as much as it likes, because the ring keeps it.
func TestRingTwoTasks(t *testing.T) {
	for _, events := range []bool{false, true} {
		t.Run(fmt.Sprintf("events=%v", events), func(t *testing.T) { ringTwoTasks(t, events) })
	}
}

func ringTwoTasks(t *testing.T, events bool) {
	const depth, requests = 8, 2000
	q, err := NewRing(depth)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		t.Skipf("NOT TESTED: the machine has no io_uring: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if events {
		if err := q.Events(); err != nil {
			t.Fatal(err)
		}
	}
	f := open(t)
	fd, _ := f.FD(false)
	free := make(chan uint32, depth)
	for i := range depth {
		free <- uint32(i)
	}
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for n := 0; n < requests; {
			if err := q.Wait(); err != nil {
				t.Error(err)
				return
			}
			for tag, res, ok := q.Next(); ok; tag, res, ok = q.Next() {
				if res != 1000 {
					t.Errorf("completion: have %d want 1000", res)
				}
				n++
				free <- tag
			}
		}
	}()
	for i := range requests {
		tag := <-free
		vecs := [][]byte{bytes.Repeat([]byte{byte(i)}, 600), nil, bytes.Repeat([]byte{byte(i + 1)}, 400)}
		if err := q.PrepVec(Write, fd, vecs, int64(i)*1000, tag); err != nil {
			t.Fatal(err)
		}
		if err := q.Enter(0); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	p := make([]byte, 1000*requests)
	if n, err := f.Transfer(Read, false, p, 0, 0); n != len(p) {
		t.Fatalf("read back: %d, %v", n, err)
	}
	for i := range p {
		want := byte(i / 1000)
		if i%1000 >= 600 {
			want++
		}
		if p[i] != want {
			t.Fatalf("byte %d: have %d want %d", i, p[i], want)
		}
	}
}

// RWF_NOWAIT reaches the kernel: a read of what is not in the page cache answers EAGAIN, and the
// same read of what is there answers with bytes. A kernel or file system without the flag says
// EOPNOTSUPP.
func TestNoWait(t *testing.T) {
	f := open(t)
	p := make([]byte, 1<<16)
	if n, err := f.Transfer(Write, false, p, 0, 0); n != len(p) || err != nil {
		t.Fatal(n, err)
	}
	if n, err := f.Transfer(Read, false, p, 0, NoWait); errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("NOT TESTED: no RWF_NOWAIT on the file system of the temporary files")
	} else if n != len(p) || err != nil {
		t.Errorf("cached: have %d, %v, want all of it", n, err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if fs, _ := FileSystem(f.path); fs == "tmpfs" {
		t.Skip("the page cache of a tmpfs is all it has")
	}
	// The kernel keeps a page that somebody else holds just now, reclaim say: it is asked again.
	var n int
	var err error
	for range 100 {
		if err := f.DropCache(0, 0); err != nil {
			t.Fatal(err)
		}
		if n, err = f.Transfer(Read, false, p, 0, NoWait); errors.Is(err, unix.EAGAIN) {
			return
		}
	}
	t.Errorf("dropped from the cache: have %d, %v, want EAGAIN", n, err)
}

// BenchmarkSystemCall measures the cost of the runtime's bookkeeping for a system call: the same
// call with it, and without.
func BenchmarkSystemCall(b *testing.B) {
	b.Run("go", func(b *testing.B) {
		for b.Loop() {
			unix.Syscall(unix.SYS_GETPPID, 0, 0, 0)
		}
	})
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
		}
	})
}

// BenchmarkQueue is a buffered 4 KiB write through each queue, one at a time, and through pwrite.
func BenchmarkQueue(b *testing.B) {
	f := open(b)
	fd, _ := f.FD(false)
	p := Aligned(4096)
	b.Run("pwrite", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			f.Transfer(Write, false, p, int64(i%1024)*4096, 0)
		}
	})
	for name, make := range map[string]func() (Queue, error){
		"io_uring": func() (Queue, error) { return NewRing(1) },
		"libaio":   func() (Queue, error) { return NewAIO(1) },
	} {
		b.Run(name, func(b *testing.B) {
			q, err := make()
			if err != nil {
				b.Skip(err)
			}
			defer q.Close()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				q.Prep(Write, fd, p, int64(i%1024)*4096, 0, 0)
				q.Enter(1)
				if _, n, ok := q.Next(); !ok || n != 4096 {
					b.Fatal(n, ok)
				}
			}
		})
	}
}

// The memory of Resident has its pages before anybody writes into it. A direct write with
// RWF_NOWAIT from memory without pages is answered with EAGAIN for ever.
func TestResident(t *testing.T) {
	p := Resident(8 << 20)
	in := make([]byte, len(p)/Align)
	_, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)),
		uintptr(unsafe.Pointer(&in[0])))
	if e != 0 {
		t.Fatal(e)
	}
	for i, b := range in {
		if b&1 == 0 {
			t.Fatalf("page %d of %d is not in memory", i, len(in))
		}
	}
}

// What was written is in memory, a hole is not before it is read.
func TestInMemory(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(f.Truncate(4<<20), func() error { _, err := f.WriteAt(make([]byte, 5000), 1<<20+100); return err }()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		off, n int64
		want   bool
	}{{1 << 20, 4096, true}, {1<<20 + 4097, 100, true}, {3 << 20, 8192, false}, {1<<20 - 4096, 4096, false}, {1<<20 - 1, 2, true}} {
		if in, err := InMemory(int(f.Fd()), c.off, c.n); err != nil || in != c.want {
			t.Errorf("[%d, +%d): in memory %t, %v want %t", c.off, c.n, in, err, c.want)
		}
	}
}
