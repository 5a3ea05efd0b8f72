package interop

import (
	"errors"
	"os"
	"strings"
	"testing"

	"btrlab/internal/hostio"
	"btrlab/internal/judge/conform"
	"btrlab/internal/testing/need"
)

// The running kernel makes the steps that the recorded one made, up to its timing, and the engine
// differs from it in what has a name only. Of another kernel than the recorded one the figures are
// logged, and nothing is held: its differences have no names.
func TestConform(t *testing.T) {
	need.All(t, need.Root, need.Loop)
	k, err := conform.Open(t.TempDir())
	if err != nil {
		need.Without(t, "way to read the kernel's tracepoints ("+err.Error()+")")
	}
	defer func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}()
	recorded := conform.OpenRecorded()
	mine := strings.HasPrefix(k.Release(), conform.KnownRelease+".")
	r := conform.Report{Kernel: k.Release(), Missing: k.Missing()}
	for i := range conform.Ops {
		op := &conform.Ops[i]
		before, err := recorded.Compare(op)
		if err != nil {
			t.Fatal(err)
		}
		least := before.Same - before.Same/10
		x, err := nearest(k, op, least)
		if err != nil {
			t.Fatal(err)
		}
		r.Results = append(r.Results, x)
		if !mine {
			continue
		}
		if !x.Explained() {
			t.Errorf("%s has a difference without a name", op.Name)
			_ = x.WriteText(os.Stderr)
		}
		if x.Same < least {
			t.Errorf("%s: %d steps are the same, want %d at least; the recorded run has %d", op.Name, x.Same, least, before.Same)
			_ = x.WriteText(os.Stderr)
		}
	}
	total := r.Totals()
	t.Logf("Linux %s: %d of %d steps of the kernel are the same, %d open", k.Release(), total.Same, total.Kernel, total.Open)
	if !mine {
		t.Skipf("SKIPPED, NOTHING HELD: Linux %s runs, and the differences are named for %s", k.Release(), conform.KnownRelease)
	}
	if len(r.Missing) > 0 {
		t.Errorf("tracepoints are missing: %v", r.Missing)
	}
}

// nearest is the first of three runs of op on the kernel in which least steps are the same, or the
// last one. Which of the kernel's tasks comes first differs from run to run, and more so on a busy
// machine: eight bios that end at once have many orders; and what other programs do there may fill
// the buffer. A step that the engine makes otherwise is missing in all three.
func nearest(k *conform.Kernel, op *conform.Op, least int) (x *conform.Result, err error) {
	for range 3 {
		x, err = k.Compare(op)
		if err == nil && x.Same >= least || err != nil && !errors.Is(err, hostio.ErrDropped) {
			break
		}
	}
	return x, err
}
