package fio

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"btrlab/internal/sched"
)

// examplesRun are the example jobs of fio that run here, of the 107 of its repository in August
// 2026; Debian's package fio-examples of 3.33 has 86, and 32 of these.
const examplesRun = `1mbs_clients aio-read atomic-verify backwards-read basic-verify butterfly cmdprio-bssplit cmdprio-percentage dedupe-global
example_latency_steadystate exitwhat fio-rand-RW fio-rand-read fio-rand-write fio-seq-RW fio-seq-read fio-seq-write fixed-rate-submission flow fsx
ftruncate iometer-file-access-server jesd219 null numa poisson-rate-submission rand-zones sequence-distribution ssd-steadystate ssd-test steadystate
surface-scan tiobench-example waitfor zipf`

// The example jobs that fio ships are GPL and not here: the test reads those of the folder
// BTRLAB_FIO_EXAMPLES, or of Debian's package fio-examples. Each runs, at 4 MiB and for a second of
// virtual time, or is refused in one line that names the file and the line.
func TestExamplesOfFio(t *testing.T) {
	runs := strings.Fields(examplesRun)
	if len(runs) != 35 {
		t.Errorf("the table has %d examples, the guide says 35", len(runs))
	}
	if guide, err := os.ReadFile("../../../labs/guide/measuring.md"); err != nil || !strings.Contains(string(guide), "\n| run | "+strings.Join(runs, " ")+" |\n") {
		t.Errorf("the table of the guide names other examples that run (%v)", err)
	}
	dir := cmp.Or(os.Getenv("BTRLAB_FIO_EXAMPLES"), "/usr/share/doc/fio/examples")
	list, err := filepath.Glob(filepath.Join(dir, "*.fio"))
	if err != nil || len(list) == 0 {
		t.Skipf("SKIPPED, NOT TRIED: %s has no examples of fio", dir)
	}
	want := map[string]bool{}
	for _, name := range runs {
		want[name] = true
	}
	ran := 0
	for _, f := range list {
		name := strings.TrimSuffix(filepath.Base(f), ".fio")
		if name == "cross-stripe-verify" {
			continue // thirty files' worth of 124 GiB apart: an image has no space for it
		}
		if err := runExample(t, f); err == nil {
			ran++
			if !want[name] {
				t.Errorf("%s runs: want it in the table", name)
			}
		} else if want[name] || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), f+":") {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Logf("%d of %d examples run", ran, len(list))
}

// slowTruncate takes its time: a job that does nothing else would not end.
type slowTruncate struct{ asDirect }

func (s slowTruncate) Truncate(t *sched.Task, size int64) error {
	t.Sleep(time.Millisecond)
	return s.asDirect.Truncate(t, size)
}

func runExample(t *testing.T, path string) (err error) {
	jf, err := ParseJobFile(path)
	if err != nil {
		return err
	}
	for _, kv := range [][2]string{{"size", "4m"}, {"runtime", "1"}, {"startdelay", "0"}, {"loops", "1"}, {"rate", "0"}} {
		if err := jf.Set(kv[0], kv[1]); err != nil {
			return err
		}
	}
	files := map[string]Target{}
	simulate(t, func(task *sched.Task) {
		r, runErr := Run(task, jf, Options{Open: func(_ *sched.Task, _ *Job, name string) (Target, error) {
			if files[name] == nil {
				files[name] = slowTruncate{asDirect{&memory{cost: time.Millisecond}}}
			}
			return files[name], nil
		}})
		if err = runErr; err != nil {
			return
		}
		if job, text, no := r.FirstError(); no != 0 {
			t.Errorf("%s: job %s: %s", path, job, text)
		}
	})
	return err
}
