package fio

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"btrlab/internal/sched"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata with what the code says")

func describe(j *Job) string {
	var w strings.Builder
	fmt.Fprintf(&w, "[%s] rw=%s engine=%v iodepth=%d numjobs=%d", j.Name, j.RW, j.Engine, j.IODepth, j.NumJobs)
	for d, use := range [2]bool{j.Read, j.Write} {
		if use {
			fmt.Fprintf(&w, " %s", [2]string{"rbs", "wbs"}[d])
			for i, b := range j.BS[d] {
				fmt.Fprintf(&w, "%c%d/%d", "=:"[min(i, 1)], b.Size, b.Percent)
			}
		}
	}
	fmt.Fprintf(&w, " size=%d", j.Size)
	add := func(on bool, f string, a ...any) {
		if on {
			fmt.Fprintf(&w, " "+f, a...)
		}
	}
	add(j.SizePercent > 0, "size=%d%%", j.SizePercent)
	add(j.Offset > 0, "offset=%d", j.Offset)
	add(j.OffsetPercent > 0, "offset=%d%%", j.OffsetPercent)
	add(j.FileSizeMax > 0, "filesize=%d-%d", j.FileSizeMin, j.FileSizeMax)
	add(j.IOSize > 0, "io_size=%d", j.IOSize)
	add(j.Runtime > 0, "runtime=%v", j.Runtime)
	add(j.TimeBased, "time_based")
	add(j.NumberIOs > 0, "number_ios=%d", j.NumberIOs)
	add(j.Direct, "direct")
	add(j.BatchSubmit != 1, "batch=%d", j.BatchSubmit)
	add(j.BatchMin != 1 || j.BatchMax != 0, "complete=%d-%d", j.BatchMin, j.BatchMax)
	add(j.DepthLow != 0, "low=%d", j.DepthLow)
	add(j.ForceAsync != 0, "force_async=%d", j.ForceAsync)
	add(j.Nowait, "nowait")
	add(len(j.IgnoreError[0])+len(j.IgnoreError[1]) > 0, "ignore=%d", j.IgnoreError)
	add(j.Fsync > 0, "fsync=%d", j.Fsync)
	add(j.Fdatasync > 0, "fdatasync=%d", j.Fdatasync)
	add(j.Sync, "sync")
	add(j.EndFsync, "end_fsync")
	add(j.Fallocate != FallocNative, "fallocate=%v", j.Fallocate)
	add(j.NoRandomMap, "norandommap")
	add(!j.Invalidate, "invalidate=0")
	add(j.GroupReporting, "group_reporting")
	add(j.Stonewall, "stonewall")
	add(j.Read && j.Write, "rwmixread=%d", j.RWMixRead)
	add(j.Skip != 0, "skip=%d", j.Skip)
	add(j.Follow != 1, "follow=%d", j.Follow)
	add(j.Distribution.Theta != 0, "zipf=%g", j.Distribution.Theta)
	add(j.Distribution.Zones != nil, "zones=%v", j.Distribution.Zones)
	add(j.OffsetStep != 0, "offset_increment=%d", j.OffsetStep)
	add(j.Loops != 1, "loops=%d", j.Loops)
	add(j.StartDelay != 0, "startdelay=%v", j.StartDelay)
	add(j.Think != 0, "think=%v/%d", j.Think, j.ThinkBlocks)
	add(j.WaitFor != "", "wait_for=%s", j.WaitFor)
	add(j.ExitAll, "exitall=%s", exitNames[j.ExitWhat])
	add(j.IgnoreAll != [2]bool{}, "continue=%v", j.IgnoreAll)
	add(j.Rate != [2]int64{}, "rate=%d,%d", j.Rate[0], j.Rate[1])
	add(j.Poisson, "poisson")
	add(!j.DoVerify, "do_verify=0")
	add(j.RateIOPS != [2]int{}, "rate_iops=%d,%d", j.RateIOPS[0], j.RateIOPS[1])
	add(j.Verify, "verify")
	add(j.Service != (Service{Each: 1}), "service=%s:%d:%g", serviceNames[j.Service.kind], j.Service.Each, j.Service.theta)
	add(true, "file=%s", strings.Join(j.fileNames(0), ":"))
	return w.String()
}

// TestParse reads testdata/jobs.txt: job files, each followed by "----" and the jobs or the error.
func TestParse(t *testing.T) {
	const file = "testdata/jobs.txt"
	in, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for i, c := range strings.Split(strings.TrimSpace(string(in)), "\n====\n") {
		text, want, _ := strings.Cut(c+"\n", "----\n")
		jf, err := Parse("job.fio", strings.NewReader(text))
		var got strings.Builder
		if err != nil {
			fmt.Fprintf(&got, "error: %v\n", err)
		} else {
			for _, j := range jf.Jobs {
				fmt.Fprintln(&got, describe(j))
			}
			for _, n := range jf.Notes {
				fmt.Fprintln(&got, "note:", n)
			}
		}
		if got.String() != want && !*rewrite {
			t.Errorf("job file\n%s\nhave %swant %s", text, got.String(), want)
		}
		if i > 0 {
			out.WriteString("====\n")
		}
		out.WriteString(text + "----\n" + got.String())
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// jobFiles are the job files that come with the project.
func jobFiles() []string {
	list, _ := filepath.Glob("../seeds/*.fio")
	more, _ := filepath.Glob("../../../testdata/fio/*.fio")
	return append(list, more...)
}

// Every job file that comes with the project parses, and seed 002 is the job as it was posted.
func TestJobFiles(t *testing.T) {
	list := jobFiles()
	if len(list) < 2 {
		t.Fatal("no job files")
	}
	for _, f := range list {
		if _, err := ParseJobFile(f); err != nil {
			t.Error(err)
		}
	}
	jf, err := ParseJobFile("../seeds/seed-002.fio")
	if err != nil {
		t.Fatal(err)
	}
	const want = "[file1] rw=randwrite engine=libaio iodepth=32 numjobs=8 wbs=4096/100 size=17179869184 runtime=3m0s time_based norandommap group_reporting file=/mnt/btrfs/nocow/testfile"
	if got := describe(jf.Jobs[0]); got != want {
		t.Errorf("seed 002\nhave %s\nwant %s", got, want)
	}
}

// TestWith: a copy has all the changes, checked together, and the original none of them.
func TestWith(t *testing.T) {
	jf, err := Parse("j", strings.NewReader("[a]\nrw=write\nsize=1m\n[b]\nrw=read\nsize=1m\n"))
	if err != nil {
		t.Fatal(err)
	}
	was := describe(jf.Jobs[0])
	c, err := jf.With([][2]string{{"nowait", "1"}, {"ioengine", "libaio"}})
	if err != nil {
		t.Fatal(err)
	}
	if have := describe(c.Jobs[1]); !c.Jobs[0].Nowait || !strings.Contains(have, "engine=libaio") || describe(jf.Jobs[0]) != was || len(jf.Global) != 0 {
		t.Errorf("have %s, the original %s and %v", have, describe(jf.Jobs[0]), jf.Global)
	}
	if _, err := jf.With([][2]string{{"nowait", "1"}}); err == nil {
		t.Error("nowait with psync")
	}
}

func TestSetScales(t *testing.T) {
	jf, err := Parse("j", strings.NewReader("[global]\nsize=1g\n[a]\nrw=write\nblocksize=8k\n[b]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range [][2]string{{"size", "1m"}, {"bs", "4k"}, {"runtime", "500ms"}, {"time_based", ""}} {
		if err := jf.Set(kv[0], kv[1]); err != nil {
			t.Fatal(err)
		}
	}
	if got := describe(jf.Jobs[0]); got != "[a] rw=write engine=psync iodepth=1 numjobs=1 wbs=4096/100 size=1048576 runtime=500ms time_based file=a.0.0" {
		t.Error(got)
	}
	if fmt.Sprint(jf.Global, jf.Jobs[0].Options) != "[{size 1m} {bs 4k} {runtime 500ms} {time_based }] [{rw write} {blocksize 4k}]" {
		t.Error(jf.Global, jf.Jobs[0].Options)
	}
	if err := jf.Set("sizes", "1m"); err == nil || !strings.Contains(err.Error(), `did you mean "size"`) {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range append(jobFiles(), "testdata/jobs.txt") {
		if b, err := os.ReadFile(name); err == nil {
			f.Add(string(b))
		}
	}
	f.Fuzz(func(t *testing.T, s string) {
		jf, err := Parse("fuzz", strings.NewReader(s))
		if err == nil && len(jf.Jobs) == 0 {
			t.Fatal("no jobs and no error")
		}
	})
}

// An option that says the opposite of another one sets the other one.
func TestOptionsThatMirror(t *testing.T) {
	for text, want := range map[string]func(j *Job) bool{
		"rwmixwrite=30": func(j *Job) bool { return j.RWMixRead == 70 },
		"rwmixread=30":  func(j *Job) bool { return j.RWMixRead == 30 },
		"buffered=0":    func(j *Job) bool { return j.Direct },
		"direct=0":      func(j *Job) bool { return !j.Direct },
	} {
		jf, err := Parse("j", strings.NewReader("[a]\nrw=rw\nsize=1m\n"+text+"\n"))
		if err != nil || !want(jf.Jobs[0]) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// With IgnoreUnknown an option that nobody knows is a note; what is known and wrong stays an error.
func TestIgnoreUnknown(t *testing.T) {
	x := Syntax{IgnoreUnknown: true}
	jf, err := x.Parse("job.fio", strings.NewReader("[a]\nzonemode=zbd\nrw=write\n"))
	if err != nil || len(jf.Notes) != 1 || jf.Notes[0] != "job.fio:2: option zonemode is unknown" || !jf.Jobs[0].Write {
		t.Errorf("have %v, %+v", err, jf)
	}
	if _, err := x.Parse("job.fio", strings.NewReader("[a]\nrw=sideways\n")); err == nil {
		t.Error("a bad value is no error")
	}
}

// ${NAME} is the environment's.
func TestEnvironment(t *testing.T) {
	t.Setenv("BTRLAB_TEST_BS", "8k")
	t.Setenv("BTRLAB_TEST_NAME", "job-of-mine")
	jf, err := Parse("job.fio", strings.NewReader("[${BTRLAB_TEST_NAME}]\nbs=${BTRLAB_TEST_BS}\ndescription=a${BTRLAB_NOT_SET}b $HOME\n"))
	if err != nil {
		t.Fatal(err)
	}
	if j := jf.Jobs[0]; j.Name != "job-of-mine" || j.BS[0][0].Size != 8192 || j.Description != "ab $HOME" {
		t.Errorf("have %q, %v, %q", j.Name, j.BS, j.Description)
	}
}

// No option is known and inert at once, and each inert one is noted with its reason, if there is
// one to tell.
func TestInert(t *testing.T) {
	if len(inert) < 50 {
		t.Fatalf("%d inert options", len(inert))
	}
	for name := range inert {
		if optionByName[name] != nil {
			t.Errorf("option %s has an effect and has none", name)
		}
		jf, err := Parse("j", strings.NewReader("[a]\n"+name+"=1\n"))
		if err != nil || len(jf.Notes) != 1 || !strings.HasPrefix(jf.Notes[0], "j:2: option "+name+" has no effect") {
			t.Errorf("%s: %v, %v", name, err, jf)
		}
	}
}

// Small jobs of the kinds that fio ships as examples: each is understood whole and runs, on a file
// of 16 MiB for a second of virtual time.
func TestExamples(t *testing.T) {
	list, err := filepath.Glob("testdata/examples/*.fio")
	if err != nil || len(list) < 6 {
		t.Fatalf("%d job files, %v", len(list), err)
	}
	for _, f := range list {
		jf, err := ParseJobFile(f)
		if err != nil {
			t.Error(err)
			continue
		}
		if len(jf.Notes) > 0 {
			t.Errorf("%s: %q", f, jf.Notes)
		}
		for _, kv := range [][2]string{{"filesize", "16m"}, {"size", "16m"}, {"runtime", "1"}, {"startdelay", "0"}, {"loops", "1"}} {
			if err := jf.Set(kv[0], kv[1]); err != nil {
				t.Errorf("%s: %v", f, err)
			}
		}
		m := asDirect{&memory{size: 16 << 20, cost: time.Millisecond}}
		simulate(t, func(task *sched.Task) {
			r, err := Run(task, jf, Options{Open: func(*sched.Task, *Job, string) (Target, error) { return m, nil }})
			if err != nil {
				t.Errorf("%s: %v", f, err)
				return
			}
			if job, text, no := r.FirstError(); no != 0 {
				t.Errorf("%s: job %s: %s", f, job, text)
			}
			for _, j := range r.Jobs {
				if j.Read.IOs+j.Write.IOs < 10 {
					t.Errorf("%s: job %s: %d reads, %d writes", f, j.Name, j.Read.IOs, j.Write.IOs)
				}
			}
		})
	}
}
