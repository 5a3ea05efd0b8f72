package kernel

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"btrlab/internal/interop"
	"btrlab/internal/judge/kernels"
	"btrlab/internal/judge/kernels/jobs"
	"btrlab/internal/judge/park"
)

// A write of a real kernel is parked where it is about to make its pages dirty, and a truncate of
// the same file waits for the inode until it is let go.
func TestParkedWrite(t *testing.T) {
	for _, k := range booted(t) {
		t.Run(k.Version, func(t *testing.T) { parkedWrite(t, k) })
	}
}

func parkedWrite(t *testing.T, k *kernels.Kernel) {
	program, err := guestProgram()
	interop.Must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), bootTime)
	defer cancel()
	image := filepath.Join(t.TempDir(), "image")
	interop.Sh(t, "truncate", "-s", "256M", image)
	interop.Sh(t, "mkfs.btrfs", "-q", image)
	m, err := park.Boot(ctx, park.Options{Kernel: k, Program: program, Args: jobs.Args("tasks"), Image: image})
	interop.Must(t, err)
	defer func() { interop.Must(t, m.Close()) }()
	t.Logf("booted %s", m.Release)
	_, err = m.Mount(ctx, "", []park.Call{{Verb: "write", File: "f", N: 16 << 10, Fill: 'a'}, {Verb: "sync", File: "f"}})
	interop.Must(t, err)
	r, err := m.Start(ctx, [][]park.Call{
		{{Verb: "write", File: "f", Off: 8 << 10, N: 8 << 10, Fill: 'b'}},
		{{Verb: "truncate", File: "f", Off: 4 << 10}},
	})
	interop.Must(t, err)
	t.Log("started")
	interop.Must(t, r.Advance(ctx, 0, "btrfs_dirty_pages"))
	t.Log("parked")
	var held *park.Held
	if err := r.Advance(ctx, 1, "btrfs_setattr"); !errors.As(err, &held) {
		t.Fatalf("a truncate beside a write: %v", err)
	}
	t.Log(held)
	interop.Must(t, r.Advance(ctx, 0, park.Gate))
	t.Log(r.At(0))
	t.Log(r.At(1))
	interop.Must(t, r.Advance(ctx, 1, park.Gate))
	t.Log(r.At(1))
	results, err := r.End(ctx)
	interop.Must(t, err)
	t.Log(results)
	b, err := m.ReadFile(ctx, "f")
	interop.Must(t, err)
	t.Logf("%d bytes, %q", len(b), b[:4])
	interop.Must(t, m.Unmount(ctx))
	interop.Judged(t, image)
}
