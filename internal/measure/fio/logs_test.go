package fio

import (
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/testing/need"
)

type nopCloser struct{ *strings.Builder }

func (nopCloser) Close() error { return nil }

// logged runs a job and gives its logs by name.
func logged(t *testing.T, job string) map[string]string {
	t.Helper()
	files := map[string]nopCloser{}
	r := runJob(t, job, &memory{cost: 10 * time.Millisecond}, func(o *Options) {
		o.Log = func(name string) (io.WriteCloser, error) {
			files[name] = nopCloser{&strings.Builder{}}
			return files[name], nil
		}
	})
	noError(t, r)
	texts := map[string]string{}
	for name, f := range files {
		texts[name] = f.String()
	}
	return texts
}

// A row of a log is one request, or with log_avg_msec the mean of a while; files have fio's names.
func TestLogs(t *testing.T) {
	have := logged(t, "[j]\nrw=write\nbs=4k\nsize=12k\nwrite_lat_log=x\nwrite_bw_log\nwrite_iops_log=y\nlog_offset=1\nioengine=libaio")
	names := []string{"j_bw.1.log", "x_clat.1.log", "x_lat.1.log", "x_slat.1.log", "y_iops.1.log"}
	if l := slices.Sorted(maps.Keys(have)); !slices.Equal(l, names) {
		t.Errorf("have %q want %q", l, names)
	}
	for name, want := range map[string]string{
		"x_slat.1.log": "10, 10000000, 1, 4096, 0, 0\n20, 10000000, 1, 4096, 4096, 0\n30, 10000000, 1, 4096, 8192, 0\n",
		"x_lat.1.log":  "10, 10000000, 1, 4096, 0, 0\n20, 10000000, 1, 4096, 4096, 0\n30, 10000000, 1, 4096, 8192, 0\n",
		"y_iops.1.log": "10, 1, 1, 4096, 0, 0\n20, 1, 1, 4096, 4096, 0\n30, 1, 1, 4096, 8192, 0\n",
	} {
		if have[name] != want {
			t.Errorf("%s: have %q want %q", name, have[name], want)
		}
	}
	have = logged(t, "[j]\nrw=write\nbs=4k\nsize=24k\nramp_time=20ms\nnumjobs=2\nper_job_logs=0\nwrite_lat_log=x\nwrite_bw_log=x\nwrite_iops_log=x\nlog_avg_msec=20")
	if l := slices.Sorted(maps.Keys(have)); !slices.Equal(l, []string{"x_bw.log", "x_clat.log", "x_iops.log", "x_lat.log"}) {
		t.Errorf("have %q", l)
	}
	for name, value := range map[string]string{"x_clat.log": "10000000", "x_bw.log": "400", "x_iops.log": "100"} {
		want := strings.Repeat("40, "+value+", 1, 0, 0\n60, "+value+", 1, 0, 0\n", 2)
		if have[name] != want {
			t.Errorf("%s: have %q want %q", name, have[name], want)
		}
	}
}

// Without a place for logs a job says that there are none.
func TestNoLogs(t *testing.T) {
	var notes []string
	runJob(t, "[j]\nrw=write\nsize=4k\nwrite_lat_log=x", &memory{}, func(o *Options) { o.Notice = func(s string) { notes = append(notes, s) } })
	if !slices.Equal(notes, []string{"j: there are no logs here"}) {
		t.Errorf("have %q", notes)
	}
}

// The judge is fio: its logs of such a job have as many columns and rows, in the same units.
func TestLogsBesideFio(t *testing.T) {
	need.All(t, "fio")
	const options = "rw=randrw bs=4k size=1m numjobs=2 ioengine=libaio iodepth=2 write_lat_log=x write_bw_log=x write_iops_log=x"
	for _, more := range []string{"", " log_offset=1"} {
		dir := t.TempDir()
		words := []string{"--name=j"}
		for o := range strings.FieldsSeq(options + more) {
			words = append(words, "--"+o)
		}
		c := exec.Command("fio", words...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		ours := logged(t, "[j]\n"+strings.ReplaceAll(options+more, " ", "\n"))
		theirs, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil || len(theirs) != len(ours) {
			t.Fatalf("fio has %q, we %q", theirs, slices.Sorted(maps.Keys(ours)))
		}
		for _, f := range theirs {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			name := filepath.Base(f)
			a, z := strings.Split(strings.TrimSpace(ours[name]), "\n"), strings.Split(strings.TrimSpace(string(b)), "\n")
			if len(a) != len(z) {
				t.Errorf("%s: have %d rows, fio %d", name, len(a), len(z))
			}
			us, fio := strings.Split(a[0], ", "), strings.Split(z[0], ", ")
			if len(us) != len(fio) {
				t.Fatalf("%s: have %q, fio %q", name, us, fio)
			}
			for i := 2; i < len(us); i++ {
				x, errA := strconv.Atoi(us[i])
				y, errB := strconv.Atoi(fio[i])
				if errA != nil || errB != nil || (i == 3 || us[i] == "0" && i == len(us)-1) && x != y {
					t.Errorf("%s: have %q, fio %q", name, us, fio)
				}
			}
		}
	}
}

// With fill_device a file grows until there is no space left, which is the end of the job and no
// error.
func TestFillDevice(t *testing.T) {
	m := &memory{fail: func(write bool, off int64) error {
		if off >= 40<<10 {
			return errno.ENOSPC
		}
		return nil
	}}
	r := runJob(t, "[j]\nrw=write\nfill_device=1", m)
	noError(t, r)
	if n := r.Jobs[0].Write.Bytes; n != 40<<10 {
		t.Errorf("%d bytes were written, want all 40 KiB that there are", n)
	}
}

// Null moves nothing and opens nothing, ftruncate sets the size of its file to the offset of each
// write, and a sequence of blocks is what the job says.
func TestEnginesWithoutData(t *testing.T) {
	m := &memory{}
	r := runJob(t, "[j]\nioengine=null\nrw=randread\nnorandommap\nsize=1t\nio_size=1m", m)
	noError(t, r)
	if r.Jobs[0].Read.IOs != 256 || len(m.log) != 0 || m.size != 0 {
		t.Errorf("null: %d reads, log %v, size %d", r.Jobs[0].Read.IOs, m.log, m.size)
	}
	m = &memory{}
	r = runJob(t, "[j]\nioengine=ftruncate\nrw=write\nsize=64k", m)
	noError(t, r)
	if r.Jobs[0].Write.IOs != 16 || len(m.log) != 0 || m.size != 60<<10 {
		t.Errorf("ftruncate: %d writes, log %v, size %d", r.Jobs[0].Write.IOs, m.log, m.size)
	}
	for stride, want := range map[string][]int64{"0": {2, 0, 1, 2, 0, 1}, "1": {2, 0, 1, 5, 3, 4}} {
		m = &memory{size: 48 << 10}
		noError(t, runJob(t, "[j]\nrw=randread\nsize=48k\nio_size=24k\nrandom_distribution=sequence:2,0,1\nrandom_sequence_stride="+stride, m))
		var have []int64
		for _, io := range m.log {
			have = append(have, io.off>>12)
		}
		if !slices.Equal(have, want) {
			t.Errorf("stride %s: have blocks %v want %v", stride, have, want)
		}
	}
}
