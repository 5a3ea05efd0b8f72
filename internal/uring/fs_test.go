package uring_test

import (
	"bytes"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/kiocb"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/uring"
)

// 256 requests of every kind in flight on a real file system when the ring closes: each has one
// completion, a write that reports success is in the file, and the file system that closes after it
// finds nothing reserved and the image clean (the fixture looks).
func TestCloseInFlight(t *testing.T) {
	x := fstest.New(t, fstest.Policy("nowait-6.1"))
	f := x.Create("/f")
	x.Must(f.SetFlags(x.T, format.InodeNoDataCow|format.InodeNoDataSum))
	x.Must(f.Fallocate(x.T, 0, 0, 256*4096))
	x.Must(f.Fsync(x.T))
	r, err := uring.New(x.T, uring.Config{Entries: 256})
	x.Must(err)
	for i := range 256 {
		e := r.GetSQE()
		*e = uring.SQE{Op: uring.Write, File: f, Pos: uint64(i) * 4096, Buf: bytes.Repeat([]byte{byte(i) | 1}, 4096), UserData: uint64(i), Async: i%4 == 1}
		if i%4 >= 2 {
			e.Flags = kiocb.Direct
		}
	}
	if n, err := r.Submit(x.T); n != 256 || err != nil {
		t.Fatal(n, err)
	}
	r.Close(x.T)
	done := make([]uring.CQE, 257)
	if n := r.Reap(x.T, done); n != 256 {
		t.Fatalf("%d completions, want 256", n)
	}
	have, seen := make([]byte, 4096), map[uint64]bool{}
	for _, e := range done[:256] {
		if seen[e.UserData] {
			t.Errorf("request %d has two completions", e.UserData)
		}
		seen[e.UserData] = true
		_, err := f.ReadAt(x.T, have, int64(e.UserData)*4096)
		x.Must(err)
		want := bytes.Repeat([]byte{byte(e.UserData) | 1}, 4096)
		if e.Err != nil {
			want = make([]byte, 4096)
		}
		if !bytes.Equal(have, want) {
			t.Errorf("request %d ended with %d (%v), and its block begins with %d", e.UserData, e.Res, e.Err, have[0])
		}
	}
	t.Logf("%+v", r.Stats(x.T))
	x.Must(f.Close(x.T))
}
