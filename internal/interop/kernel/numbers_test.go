package kernel

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"btrlab/internal/interop"
	"btrlab/internal/lock"
	"btrlab/internal/sched"
)

// The numbers of the project against Linux on this machine: ratios in alternating rounds of one
// run, printed with their spread. They are measured by make bench and never judged: the clock is
// the machine's, and its neighbours'.

const overwriteJob = `[global]
ioengine=psync
rw=randwrite
bs=4k
size=256M
norandommap
time_based
runtime=3
thread
group_reporting
numjobs=%d
[w]
filename=%s
`

// TestNumbersOverwrite: buffered 4 KiB random overwrites of a cached NOCOW file of 256 MiB, ours
// and Linux's, both on an image in memory.
func TestNumbersOverwrite(t *testing.T) {
	interop.Numbers(t, "fio", "chattr")
	bin := interop.Binary(t)
	ours, theirs := interop.Image(t, "ours.img"), interop.Image(t, "theirs.img")
	// Large and sparse: in a small image Linux keeps flushing for want of metadata space, at a
	// fifth of the rate.
	interop.Sh(t, bin, "mkfs", "-q", "--size", "16G", ours)
	interop.Sh(t, "truncate", "-s", "16G", theirs)
	interop.Sh(t, "mkfs.btrfs", "-q", theirs)
	interop.Mounted(t, theirs, "", func(dir string) {
		file := filepath.Join(dir, "f")
		interop.Sh(t, "sh", "-c", fmt.Sprintf("touch %s && chattr +C %s && head -c 268435456 /dev/zero > %s", file, file, file))
		interop.Sh(t, "sync", "-f", dir)
		src := filepath.Join(t.TempDir(), "zero")
		// written, not a hole: put keeps holes
		interop.Must(t, os.WriteFile(src, make([]byte, 256<<20), 0o644))
		interop.Sh(t, bin, "put", "--nocow", src, ours+":/f")
		job := func(name string, jobs int, file string) string {
			path := filepath.Join(t.TempDir(), name)
			interop.Must(t, os.WriteFile(path, fmt.Appendf(nil, overwriteJob, jobs, file), 0o644))
			return path
		}
		for _, c := range []struct {
			jobs   int
			policy string
		}{{1, "locked"}, {1, "range-lock"}, {8, "locked"}, {8, "range-lock"}} {
			linuxJob, ourJob := job("linux.fio", c.jobs, file), job("ours.fio", c.jobs, "f")
			var a, b []float64
			for range interop.Rounds {
				a = append(a, interop.FioIOPS(t, interop.Sh(t, bin, "bench", ourJob, "--image", ours, "--policy", c.policy, "--json")))
				b = append(b, interop.FioIOPS(t, interop.Sh(t, "fio", "--output-format=json", linuxJob)))
			}
			interop.Spread(t, fmt.Sprintf("4k random overwrite, %d jobs, policy %s", c.jobs, c.policy), a, "Linux", b, "iops")
		}
	})
}

// TestNumbersEviction: the same work with a cache of an eighth of the file and with one that holds
// all of it. The goal is 0.8.
func TestNumbersEviction(t *testing.T) {
	interop.Measurement(t)
	bin := interop.Binary(t)
	const mib = 512
	dir := filepath.Dir(interop.Image(t, "x"))
	img, src, dst, job := filepath.Join(dir, "img"), filepath.Join(dir, "src"), filepath.Join(dir, "dst"), filepath.Join(dir, "job")
	interop.Must(t, os.WriteFile(src, interop.NewFiller(3).Bytes(mib<<20), 0o644))
	interop.Must(t, os.WriteFile(job, fmt.Appendf(nil, "[w]\nfilename=b\nrw=write\nbs=64k\nsize=%dM\nend_fsync=1\n", mib), 0o644))
	interop.Sh(t, bin, "mkfs", "-q", "--size", "4G", img)
	interop.Sh(t, bin, "put", src, img+":/g")
	rate := func(args ...string) float64 {
		start := time.Now()
		interop.Sh(t, bin, args...)
		return mib / time.Since(start).Seconds()
	}
	for _, c := range []struct {
		what string
		run  func(cache string) float64
	}{
		{"put", func(cache string) float64 {
			defer interop.Sh(t, bin, "rm", img+":/f")
			return rate("put", "--cache", cache, src, img+":/f")
		}},
		{"get", func(cache string) float64 {
			defer os.Remove(dst)
			return rate("get", "--cache", cache, img+":/g", dst)
		}},
		{"bench, 64k writes", func(cache string) float64 {
			defer interop.Sh(t, bin, "rm", img+":/b")
			return rate("bench", "--cache", cache, "--image", img, job)
		}},
	} {
		var a, b []float64
		for range interop.Rounds {
			a = append(a, c.run("64M"))
			b = append(b, c.run("2G"))
		}
		interop.Spread(t, fmt.Sprintf("%s of %d MiB with a cache of 64 MiB", c.what, mib), a, "without eviction", b, "MiB/s")
	}
}

// TestNumbersLock: an uncontended lock through package lock in the real runtime, against sync's.
func TestNumbersLock(t *testing.T) {
	interop.Measurement(t)
	task := sched.NewTask("bench")
	var ours lock.Mutex
	var theirs sync.Mutex
	var a, b []float64
	ns := func(f func(b *testing.B)) float64 {
		r := testing.Benchmark(f)
		return float64(r.T.Nanoseconds()) / float64(r.N)
	}
	for range interop.Rounds {
		a = append(a, ns(func(b *testing.B) {
			for b.Loop() {
				ours.Lock(task)
				ours.Unlock(task)
			}
		}))
		b = append(b, ns(func(b *testing.B) {
			for b.Loop() {
				theirs.Lock()
				theirs.Unlock() //lint:ignore SA2001 the empty section is what is measured
			}
		}))
	}
	interop.Spread(t, "uncontended lock and unlock (less is better)", a, "sync.Mutex", b, "ns")
}

// TestNumbersFirstUse: from the shell to the race, its shortest schedule and its timeline. The goal
// is a second.
func TestNumbersFirstUse(t *testing.T) {
	interop.Measurement(t)
	bin := interop.Binary(t)
	var ms []float64
	for range interop.Rounds {
		start := time.Now()
		if out, err := exec.Command(bin, "explore", "truncate-race", "--policy", "unlocked").Output(); err == nil || !strings.Contains(string(out), "replay: btrlab replay truncate-race") {
			t.Fatalf("%v\n%s", err, out)
		}
		ms = append(ms, time.Since(start).Seconds()*1000)
	}
	sort.Float64s(ms)
	fmt.Printf("%-58s %.0f ms (%.0f..%.0f, %d rounds), goal 1000 ms\n", "explore truncate-race --policy unlocked, the process", ms[len(ms)/2], ms[0], ms[len(ms)-1], len(ms))
}

// TestNumbersCalibrate: what the costs of this machine let virtual time say of jobs that keep two
// processors busy, beside what the real runtime does, in alternating rounds. The goal is 15 %.
func TestNumbersCalibrate(t *testing.T) {
	interop.Measurement(t)
	bin := interop.Binary(t)
	out := filepath.Join(t.TempDir(), "costs.json")
	fmt.Println(interop.Sh(t, bin, "calibrate", "--verify", "--out", out))
	var r struct {
		Agreement []struct {
			Name, Policy string
			Ratio        float64 `json:"virtual_by_real"`
		}
	}
	b, err := os.ReadFile(out)
	interop.Must(t, err)
	interop.Must(t, json.Unmarshal(b, &r))
	near := 0
	for _, a := range r.Agreement {
		if a.Ratio > 1/1.15 && a.Ratio < 1.15 {
			near++
		}
	}
	fmt.Printf("%-58s %d of %d, goal 6\n", "jobs of which virtual time is within 15 %", near, len(r.Agreement))
}
