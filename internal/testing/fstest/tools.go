package fstest

// Helpers of tests on a file system.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"

	"btrlab/internal/sched"
)

// Parallel runs n tasks and waits for them.
func Parallel(t *sched.Task, n int, f func(t *sched.Task, i int)) {
	var tasks []*sched.Task
	for i := range n {
		tasks = append(tasks, t.Go(fmt.Sprintf("task%d", i), func(t *sched.Task) { f(t, i) }))
	}
	for _, c := range tasks {
		t.Join(c)
	}
}

// Stamp fills p, whose length is a multiple of 8, with a writer's mark.
func Stamp(p []byte, mark uint64) {
	if len(p) == 0 {
		return
	}
	binary.LittleEndian.PutUint64(p, mark)
	for n := 8; n < len(p); n *= 2 { // the race detector looks at a copy once, not at each byte
		copy(p[n:], p[:n])
	}
}

// Random fills p with bytes that do not repeat.
func Random(r *rand.Rand, p []byte) {
	var b [8]byte
	for len(p) > 0 {
		binary.LittleEndian.PutUint64(b[:], r.Uint64())
		p = p[copy(p, b[:]):]
	}
}

func ReadFull(t *testing.T, tk *sched.Task, read func(*sched.Task, []byte, int64) (int, error), p []byte, off int64) []byte {
	t.Helper()
	n, err := read(tk, p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatalf("read of %d bytes at %d: %v", len(p), off, err)
	}
	return p[:n]
}

func Differs(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func Must[T any](v T, err error) T {
	NoError(err)
	return v
}

// NoError is for what cannot fail in an exploration.
func NoError(err error) {
	if err != nil {
		panic(err)
	}
}

func DiffAt(have, want []byte) string {
	for i := range min(len(have), len(want)) {
		if have[i] != want[i] {
			return fmt.Sprintf(", first difference at %d: have %#x want %#x", i, have[i], want[i])
		}
	}
	return ""
}

func Until(cond func() bool) {
	for !cond() {
		runtime.Gosched()
	}
}
