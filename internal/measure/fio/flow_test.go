package fio

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"btrlab/internal/errno"
)

// offsets runs a job on a file of 64k and lists the offsets it touched, in KiB.
func offsets(t *testing.T, job string) (list []int64) {
	t.Helper()
	m := &memory{size: 64 << 10}
	noError(t, runJob(t, "[j]\n"+job, m))
	for _, io := range m.log {
		list = append(list, io.off>>10)
	}
	return list
}

// The offsets of streams with gaps, of random requests with followers, of tasks side by side and of
// several passes.
func TestStreams(t *testing.T) {
	for job, want := range map[string]string{
		"rw=write\nsize=16k":                                            "[0 4 8 12]",
		"rw=write:4k\nsize=16k":                                         "[0 8 0 8]",
		"rw=write:8k\nsize=32k":                                         "[0 12 24 0 12 24 0 12]",
		"rw=write:-8k\nsize=32k":                                        "[24 20 16 12 8 4 0 24]",
		"rw=write:-8k\nsize=16k\noffset=16k":                            "[24 20 16 24]",
		"rw=write\nsize=8k\nloops=3":                                    "[0 4 0 4 0 4]",
		"rw=write\nsize=8k\nloops=2\nnumber_ios=1":                      "[0 0]",
		"rw=write\nsize=8k\nnumjobs=3\noffset_increment=8k\nfilename=f": "[0 4 8 12 16 20]",
	} {
		if have := fmt.Sprint(offsets(t, job)); have != want {
			t.Errorf("%q: have %s, want %s", job, have, want)
		}
	}
	list := offsets(t, "rw=randwrite:4\nsize=64k\nnorandommap\nnumber_ios=64\nio_size=1m")
	runs, length := 0, 1
	for i := 1; i < len(list); i++ {
		if length < 4 && list[i-1] != 60 {
			if length++; list[i] != list[i-1]+4 {
				t.Errorf("request %d leaves a run of four: %d after %d", i, list[i], list[i-1])
			}
			continue
		}
		runs, length = runs+1, 1
	}
	if runs < 12 {
		t.Errorf("%d runs in 64 requests, want about 16", runs)
	}
	if have := offsets(t, "rw=randwrite:8\nsize=64k"); len(have) != 16 {
		t.Errorf("with the map %d requests, want 16", len(have))
	} else if slices.Sort(have); have[0] != 0 || have[15] != 60 || len(slices.Compact(have)) != 16 {
		t.Errorf("with the map not every block once: %d", have)
	}
}

// bsrange takes every multiple of its smallest size, and all as often.
func TestBSRange(t *testing.T) {
	m := &memory{}
	noError(t, runJob(t, "[j]\nrw=randwrite\nnorandommap\nbsrange=4k-16k\nsize=64m\nnumber_ios=4000\nio_size=1g", m))
	n := map[int]int{}
	for _, io := range m.log {
		n[io.n>>10]++
	}
	for _, k := range []int{4, 8, 12, 16} {
		if n[k] < 850 || n[k] > 1150 {
			t.Errorf("%d of 4000 requests have %d KiB, want about 1000", n[k], k)
		}
	}
	if len(n) != 4 {
		t.Errorf("sizes in KiB: %v", n)
	}
}

// Zones get their share of the requests, and zipf's first rank the share that its formula gives.
func TestDistributions(t *testing.T) {
	const job = "[j]\nrw=randwrite\nnorandommap\nsize=4000k\nnumber_ios=20000\nio_size=1g\nrandom_distribution="
	m := &memory{}
	noError(t, runJob(t, job+"zoned:50/5:30/15:20/", m))
	var in [3]int
	for _, io := range m.log {
		switch pct := io.off >> 10 * 100 / 4000; {
		case pct < 5:
			in[0]++
		case pct < 20:
			in[1]++
		default:
			in[2]++
		}
	}
	for i, want := range []int{10000, 6000, 4000} {
		if math.Abs(float64(in[i]-want)) > 300 {
			t.Errorf("zone %d got %d of 20000, want about %d", i, in[i], want)
		}
	}
	for _, theta := range []float64{0.8, 1.2} {
		m := &memory{}
		noError(t, runJob(t, job+fmt.Sprintf("zipf:%g", theta), m))
		n, sum := map[int64]int{}, 0.0
		for _, io := range m.log {
			n[io.off]++
		}
		most := 0
		for _, k := range n {
			most = max(most, k)
		}
		for i := 1; i <= 1000; i++ {
			sum += math.Pow(float64(i), -theta)
		}
		if want := 20000 / sum; math.Abs(float64(most)-want) > 0.1*want {
			t.Errorf("zipf:%g: the block used most got %d of 20000, want about %.0f", theta, most, want)
		}
	}
}

// What a job does between its requests and before them, in virtual time: a request takes 1 ms.
func TestPauses(t *testing.T) {
	for job, want := range map[string]time.Duration{
		"rw=write\nsize=32k":                                    8 * time.Millisecond,
		"rw=write\nsize=32k\nthinktime=500":                     12 * time.Millisecond,
		"rw=write\nsize=32k\nthinktime=500us":                   12 * time.Millisecond,
		"rw=write\nsize=32k\nthinktime=500\nthinktime_blocks=4": 9 * time.Millisecond,
		// 4k each 10 ms, the first at once
		"rw=write\nsize=40k\nrate=400k":                      91 * time.Millisecond,
		"rw=write\nsize=32k\nbssplit=8k/100:4k/0\nrate=400k": 61 * time.Millisecond,
		// what comes before the start does not count
		"rw=write\nsize=32k\nstartdelay=1\nrate_iops=100": 71 * time.Millisecond,
	} {
		r := runJob(t, "[j]\n"+job, &memory{cost: time.Millisecond})
		noError(t, r)
		if have := time.Duration(r.Jobs[0].Write.RunNs); have != want {
			t.Errorf("%q: ran for %v, want %v", job, have, want)
		}
		if strings.Contains(job, "startdelay") && r.ElapsedNs != int64(want+time.Second) {
			t.Errorf("%q: all of it took %v", job, time.Duration(r.ElapsedNs))
		}
	}
	m := &memory{}
	noError(t, runJob(t, "[j]\nrw=write\nsize=8m\nrate_iops=1000\nrate_process=poisson", m))
	same := map[int64]int{}
	for i := 1; i < len(m.log); i++ {
		same[m.log[i].at-m.log[i-1].at]++
	}
	took := time.Duration(m.log[len(m.log)-1].at - m.log[0].at)
	if len(same) < 1900 || took < 1900*time.Millisecond || took > 2200*time.Millisecond {
		t.Errorf("2047 random pauses of 1 ms in the mean took %v, %d of them different", took, len(same))
	}
}

// A job waits for the one it names, and the end of one ends those that exit_what names.
func TestOrderOfJobs(t *testing.T) {
	last := func(text string) map[string]time.Duration {
		t.Helper()
		m := &memory{cost: time.Millisecond}
		noError(t, runJob(t, text, m))
		ends := map[string]time.Duration{}
		for _, io := range m.log {
			ends[io.task] = max(ends[io.task], time.Duration(io.at))
		}
		return ends
	}
	check := func(have map[string]time.Duration, task string, lo, hi time.Duration) {
		t.Helper()
		if at := have[task]; at < lo || at > hi {
			t.Errorf("%s wrote last at %v, want %v to %v", task, at, lo, hi)
		}
	}
	const ms = time.Millisecond
	have := last("[global]\nrw=write\nfilename=f\n[a]\nsize=40k\nnumjobs=2\n[b]\nsize=20k\nwait_for=a\n[c]\nsize=20k\n")
	check(have, "b.2", 14*ms, 15*ms)
	check(have, "c.3", 4*ms, 5*ms)

	const two = "[global]\nrw=write\nfilename=f\n[short]\nsize=20k\nexitall\n%s[same]\nsize=200k\n[other]\nnew_group\nsize=200k\n[then]\nstonewall\nsize=20k\n"
	have = last(fmt.Sprintf(two, ""))
	check(have, "same.1", 4*ms, 7*ms)
	check(have, "other.2", 49*ms, 50*ms)
	check(have, "then.3", 54*ms, 55*ms)
	have = last(fmt.Sprintf(two, "exit_what=stonewall\n"))
	check(have, "other.2", 4*ms, 7*ms)
	check(have, "then.3", 9*ms, 12*ms)
	have = last(fmt.Sprintf(two, "exit_what=all\n"))
	if _, ran := have["then.3"]; ran {
		t.Error("exit_what=all: a later wave ran")
	}
}

// continue_on_error goes on after errors of its direction alone.
func TestContinueOnError(t *testing.T) {
	job := func(what string) int {
		m := &memory{size: 40 << 10, fail: func(write bool, off int64) error {
			if off == 8<<10 {
				return errno.EIO
			}
			return nil
		}}
		r := runJob(t, "[j]\nrw=write\nsize=40k\ncontinue_on_error="+what, m)
		_, _, no := r.FirstError()
		return no
	}
	for what, want := range map[string]int{"none": int(errno.EIO), "read": int(errno.EIO), "write": 0, "io": 0, "all": 0} {
		if have := job(what); have != want {
			t.Errorf("continue_on_error=%s: error %d, want %d", what, have, want)
		}
	}
}
