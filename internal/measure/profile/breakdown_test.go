package profile

import (
	"bytes"
	"hash/crc32"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"btrlab/internal/sched"
	"btrlab/internal/trace"
)

// A stack is in the part of its innermost function that is one, and a system call or a copy in
// theirs wherever it is made.
func TestPartOf(t *testing.T) {
	for _, c := range []struct{ stack, want string }{
		{"btrlab/internal/data/writeback.(*Run).Submit btrlab/internal/fs.(*File).Fsync", "data/writeback"},
		{"runtime.mapaccess1 btrlab/internal/meta/ctree.(*cache).find btrlab/internal/fs.(*FS).Sync", "meta/ctree"},
		{"internal/runtime/syscall/linux.Syscall6 syscall.Syscall6 btrlab/internal/blockdev.(*File).do", "system calls"},
		{"runtime.memmove btrlab/internal/data/pagecache.(*Page).CopyIn", "copies and zeroes"},
		{"hash/crc32.ieeeCLMUL btrlab/internal/meta/ctree.(*Buffer).write", "checksums"},
		{"runtime.futex runtime.notesleep runtime.stopm runtime.findRunnable runtime.schedule runtime.mcall", "Go: scheduler"},
		{"runtime.nextFreeFast runtime.mallocgc runtime.newobject", "Go: memory"},
		{"runtime.scanobject runtime.gcDrain runtime.gcBgMarkWorker.func2", "Go: memory"},
		{"btrlab/cmd/btrlab.main runtime.main", "cmd/btrlab"},
		{"runtime.rt0_go", "others"},
		{"", "others"},
	} {
		if got := partOf(strings.Fields(c.stack)); got != c.want {
			t.Errorf("%s: part %q, want %q", c.stack, got, c.want)
		}
	}
}

// The rows with the most time come first, and the rest is one row.
func TestLongest(t *testing.T) {
	rows := map[string]*share{}
	for i := range 20 {
		add(rows, string(rune('a'+i)), int64(i), 2)
	}
	add(rows, "a", 100, 1)
	list, all := longest(rows)
	if all.nanos != 190+100 || all.count != 41 || len(list) != rowsMax {
		t.Errorf("%d rows, all %+v", len(list), all)
	}
	if list[0] != (share{"a", 100, 3}) || list[1].what != "t" {
		t.Errorf("first %+v", list[:2])
	}
	var sum int64
	for _, r := range list {
		sum += r.nanos
	}
	if last := list[rowsMax-1]; last.what != others || sum != all.nanos {
		t.Errorf("last %+v, sum %d of %d", last, sum, all.nanos)
	}
}

// The tables say how much processor time the checksums of a run took, and the wait that there was.
func TestBreakdown(t *testing.T) {
	var out bytes.Buffer
	stop, err := Start(Paths{Breakdown: &out})
	if err != nil {
		t.Fatal(err)
	}
	k := sched.NewTask("test")
	contend(k)
	p := make([]byte, 1<<20)
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli))
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"processor time: ", "  checksums\n", "\nwaits: ", "  test_a\n", " 1  "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Tables beside a lock profile have its waits, and nothing collects waits after the end.
func TestBreakdownEnds(t *testing.T) {
	var out, locks bytes.Buffer
	stop, err := Start(Paths{Breakdown: &out, Lock: "-", LockText: &locks})
	if err != nil {
		t.Fatal(err)
	}
	contend(sched.NewTask("test"))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{out.String(), locks.String()} {
		if !strings.Contains(text, "test_a") {
			t.Errorf("no wait in\n%s", text)
		}
	}
	if was := trace.SetSink(nil); was != nil {
		t.Errorf("%T collects waits after the end", was)
	}
}

// A run in which nobody waits says so, and the CPU profile that is asked for beside is whole.
func TestBreakdownBeside(t *testing.T) {
	var out bytes.Buffer
	cpu := t.TempDir() + "/cpu"
	stop, err := Start(Paths{Breakdown: &out, CPU: cpu})
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(cpu)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := profile.Parse(f); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "no task waited") {
		t.Errorf("said %q", out.String())
	}
}
