package cli

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/testing/need"
)

// In virtual time every byte of the output is the same for the same seed, whatever the host does.
func TestVirtualTimeIsTheSameEveryTime(t *testing.T) {
	need.Long(t)
	job := "[j]\nrw=randwrite\nbs=4k\nsize=16m\nnumjobs=4\nruntime=60ms\ntime_based\nnorandommap\ngroup_reporting\nioengine=libaio\niodepth=8\nfilename=f\n"
	for _, args := range [][]string{
		{"bench", "-", "--runtime", "vtime", "--cpus", "4", "--nocow", "--json", "--device-model", "ssd-raid5"},
		{"bench", "-", "--runtime", "vtime", "--cpus", "2", "--policy", "unlocked", "--json"},
		{"compare", "--runtime", "vtime", "--runtime-seconds", "0.03", "--rounds", "1", "--size", "8M", "--cpus", "4", "--device-model", "nvme", "--json"},
	} {
		run := func(seed string, procs int) string {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			var out, errw bytes.Buffer
			if code := Main(append(args, "--seed", seed), strings.NewReader(job), &out, &errw); code != 0 {
				t.Fatalf("%v: exit %d: %s", args, code, errw.String())
			}
			return out.String()
		}
		want := run("1", 1)
		for _, procs := range []int{1, 2} {
			if got := run("1", procs); got != want {
				t.Fatalf("%v: GOMAXPROCS %d:\n%s\nwant\n%s", args, procs, got, want)
			}
		}
		if run("2", 1) == want {
			t.Errorf("%v: seed 2 is the same as seed 1", args)
		}
	}
}

// A file larger than memory: no data is kept, and the output says that nothing was verified.
func TestNoPayload(t *testing.T) {
	var out, errw bytes.Buffer
	args := []string{"compare", "--runtime", "vtime", "--no-payload", "--runtime-seconds", "0.02", "--rounds", "1", "--size", "128M", "--policy", "locked,range-lock"}
	if code := Main(args, strings.NewReader(""), &out, &errw); code != 0 {
		t.Fatalf("exit %d: %s%s", code, out.String(), errw.String())
	}
	if s := out.String(); strings.Count(s, "not verified") != 1 || strings.Count(s, "ms    ok\n") != 2 {
		t.Errorf("output:\n%s", s)
	}
}

// TestCommitInterval: a transaction that has the age commits by itself. Otherwise only the ends of
// the phases of a run do.
func TestCommitInterval(t *testing.T) {
	need.Long(t)
	dir := t.TempDir()
	img, job := filepath.Join(dir, "a.img"), filepath.Join(dir, "job.fio")
	text := "[j]\nrw=randwrite\nbs=4k\nsize=4m\nruntime=60ms\ntime_based\nnorandommap\n"
	if err := os.WriteFile(job, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"bench", job, "--image", img},
		{"compare", "--job", job, "--device", img, "--policy", "locked", "--rounds", "1"},
	} {
		commits := func(interval string) uint64 {
			verb(t, 0, "mkfs", "-q", "--force", "--size", "128M", img)
			verb(t, 0, append(args, "--runtime", "vtime", "--commit-interval", interval)...)
			b, err := os.ReadFile(img)
			if err != nil {
				t.Fatal(err)
			}
			return binary.LittleEndian.Uint64(b[format.SuperOffset+0x48:])
		}
		never, late, often := commits("0"), commits("30s"), commits("10ms")
		if never != late || often < never+4 {
			t.Errorf("%s: generation %d without an interval, %d with 30 s, %d with 10 ms; want the same twice, and 4 more at least", args[0], never, late, often)
		}
		verb(t, 2, append(args, "--commit-interval", "-1s")...)
	}
}
