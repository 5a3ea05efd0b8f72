package fio

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/measure/stats"
	"btrlab/internal/sched"
)

// runFiles runs a job in virtual time on memories of their own, and returns them by name.
func runFiles(t *testing.T, text string) (*stats.Run, map[string]*memory) {
	t.Helper()
	files := map[string]*memory{}
	r := runJob(t, text, nil, func(o *Options) {
		o.Open = func(_ *sched.Task, _ *Job, name string) (Target, error) {
			files[name] = &memory{cost: 1000}
			return asDirect{files[name]}, nil
		}
	})
	noError(t, r)
	return r, files
}

// TestSeveralFiles: fio 3.33 moved these bytes by these jobs, and made the files of these sizes.
func TestSeveralFiles(t *testing.T) {
	for _, c := range []struct {
		job, sizes string
		ios        uint64
	}{
		{"filename=a\nnrfiles=4\nsize=64k", "a=65536", 16},
		{`filename=x\:y:b` + "\nsize=40k", "b=20480 x:y=20480", 10},
		{"nrfiles=3\nsize=64k", "j.0.0=21845 j.0.1=21845 j.0.2=21845", 15},
		{"filename=b:c\nsize=40k", "b=20480 c=20480", 10},
		{"nrfiles=2\nfilesize=16k\nsize=1m", "j.0.0=16384 j.0.1=16384", 8},
		{"nrfiles=2\nfilesize=16k\noffset=8k", "j.0.0=16384 j.0.1=16384", 4},
		{"filename_format=q.$jobnum.$filenum\nnrfiles=2\nnumjobs=2\ngroup_reporting\nsize=32k", "q.0.0=16384 q.0.1=16384 q.1.0=16384 q.1.1=16384", 16},
	} {
		for _, engine := range []string{"psync", "libaio\niodepth=4", "io_uring\niodepth=4", "libaio\ndirect=1\niodepth=4"} {
			r, files := runFiles(t, "[j]\nrw=write\nioengine="+engine+"\n"+c.job)
			var sizes []string
			for name, m := range files {
				sizes = append(sizes, fmt.Sprintf("%s=%d", name, m.size))
				seen := map[int64]bool{}
				for _, io := range m.log {
					seen[io.off] = true
				}
				if want := len(m.log); want == 0 || len(seen) != want {
					t.Errorf("%s %s: %s has %d requests at %d offsets", engine, c.job, name, want, len(seen))
				}
			}
			slices.Sort(sizes)
			if have := strings.Join(sizes, " "); have != c.sizes || r.Jobs[0].Write.IOs != c.ios {
				t.Errorf("%s %s: %d writes, sizes %s, want %d, %s", engine, c.job, r.Jobs[0].Write.IOs, have, c.ios, c.sizes)
			}
		}
	}
}

// TestFileSizes: sizes of a range are whole blocks in it, not all alike, and the same every time.
func TestFileSizes(t *testing.T) {
	const job = "[j]\nrw=write\nbs=4k\nnrfiles=40\nfilesize=10k-64k\nrandseed=3"
	_, files := runFiles(t, job)
	_, again := runFiles(t, job)
	kinds := map[int64]bool{}
	for name, m := range files {
		kinds[m.size] = true
		if m.size%4096 != 0 || m.size < 8192 || m.size > 65536 || again[name].size != m.size {
			t.Errorf("%s has %d bytes, and %d the second time", name, m.size, again[name].size)
		}
	}
	if len(kinds) < 8 {
		t.Errorf("%d sizes of 40 files", len(kinds))
	}
}

// TestService: whose turn it is.
func TestService(t *testing.T) {
	for _, c := range []struct{ job, want string }{
		{"file_service_type=roundrobin", "0 1 2 0 1 2 0 1 2 0 1 2"},
		{"", "0 1 2 0 1 2 0 1 2 0 1 2"},
		{"file_service_type=roundrobin:3", "0 0 0 1 1 1 2 2 2 0 1 2"},
		{"file_service_type=sequential", "0 0 0 0 1 1 1 1 2 2 2 2"},
		{"file_service_type=sequential\nloops=2\nnrfiles=1\nsize=8k", "0 0 0 0"},
	} {
		var order []string
		runJob(t, "[j]\nrw=write\nnrfiles=3\nsize=48k\nfallocate=none\n"+c.job, nil, func(o *Options) {
			o.Open = func(_ *sched.Task, _ *Job, name string) (Target, error) {
				return &memory{fail: func(bool, int64) error {
					order = append(order, name[len(name)-1:])
					return nil
				}}, nil
			}
		})
		if have := strings.Join(order, " "); have != c.want {
			t.Errorf("%q: %s, want %s", c.job, have, c.want)
		}
	}

	for _, c := range []struct {
		kind  string
		files int     // of 20 that are asked for; zipf's ranks are hashed, and some meet
		most  float64 // of the requests to one file
		runs  float64 // requests to a file before another's turn, on average
	}{{"random", 20, 0.06, 1.1}, {"random:8", 20, 0.06, 8.4}, {"zipf:1.5", 13, 0.6, 1.7}} {
		var order []string
		runJob(t, "[j]\nrw=randread\nnrfiles=20\nsize=20m\ntime_based\nruntime=1\nnorandommap\nnumber_ios=4000\nfile_service_type="+c.kind, nil, func(o *Options) {
			o.Open = func(_ *sched.Task, _ *Job, name string) (Target, error) {
				return &memory{cost: 250_000, fail: func(write bool, _ int64) error {
					if !write {
						order = append(order, name)
					}
					return nil
				}}, nil
			}
		})
		count, turns, most := map[string]int{}, 1, 0
		for i, name := range order {
			count[name]++
			most = max(most, count[name])
			if i > 0 && order[i-1] != name {
				turns++
			}
		}
		share, run := float64(most)/float64(len(order)), float64(len(order))/float64(turns)
		if len(order) < 3000 || len(count) != c.files || share > c.most*1.2 || share < c.most*0.8 || run > c.runs*1.2 || run < c.runs*0.8 {
			t.Errorf("%s: %d requests to %d files, %.2f to one, %.2f at a time; want %d, about %.2f and %.2f", c.kind, len(order), len(count), share, run, c.files, c.most, c.runs)
		}
	}
}

// TestVerifyFiles: what went to one file is not taken for another's.
func TestVerifyFiles(t *testing.T) {
	const job = "[j]\nrw=randwrite\nbs=4k\nnrfiles=3\nsize=96k\nverify=crc32c\nioengine=io_uring\niodepth=4"
	r, files := runFiles(t, job)
	if r.Jobs[0].Read.IOs != 24 || r.Jobs[0].VerifyErrors != 0 {
		t.Errorf("%d units were read back, %d bad", r.Jobs[0].Read.IOs, r.Jobs[0].VerifyErrors)
	}
	swapped := false
	r = runJob(t, job, nil, func(o *Options) {
		o.Open = func(_ *sched.Task, _ *Job, name string) (Target, error) {
			m := &memory{}
			m.fail = func(write bool, off int64) error {
				if !write && off == 4096 && name == "j.0.1" { // another file's block
					copy(m.data[off:off+4096], files["j.0.2"].data[:4096])
					swapped = true
				}
				return nil
			}
			return m, nil
		}
	})
	if _, text, _ := r.FirstError(); !swapped || !strings.Contains(text, "j.0.1: verify") {
		t.Errorf("a block of another file: %q", text)
	}
}

// TestFlow: of the requests of a flow each task has its share, whatever a request of it costs, and
// the last goes on alone. Two that share a flow_id share nothing with a third.
func TestFlow(t *testing.T) {
	for _, engine := range []string{"psync", "io_uring\niodepth=8"} {
		r, _ := runFiles(t, "[global]\nrw=randwrite\nnorandommap\nsize=1m\nruntime=1\ntime_based\nioengine="+engine+
			"\n[a]\nflow=1\nrate_iops=100\n[b]\nflow=3\n[c]\nflow=1\nflow_id=1\n")
		a, b, c := r.Jobs[0].Write.IOs, r.Jobs[1].Write.IOs, r.Jobs[2].Write.IOs
		if a < 90 || a > 110 || b < 3*a-10 || b > 3*a+10 || c < 10*b {
			t.Errorf("%s: flow 1 at 100/s: %d, flow 3: %d, of another flow: %d", engine, a, b, c)
		}
		r, _ = runFiles(t, "[global]\nrw=write\nsize=400k\nioengine="+engine+"\n[a]\nflow=1\nnumber_ios=10\n[b]\nflow=3\n")
		if a, b := r.Jobs[0].Write.IOs, r.Jobs[1].Write.IOs; a != 10 || b != 100 {
			t.Errorf("%s: %d and %d writes, want 10 and 100: the last goes on alone", engine, a, b)
		}
	}
}

// TestBlockAlign: random offsets are multiples of blockalign, also of requests that are smaller or
// larger.
func TestBlockAlign(t *testing.T) {
	_, files := runFiles(t, "[j]\nrw=randwrite\nbssplit=512/50:8k/50\nblockalign=4k\nsize=1m\nnumber_ios=200")
	if r, _ := runFiles(t, "[j]\nrw=randwrite\nbs=16k\nblockalign=4k\nsize=4m"); r.Jobs[0].Write.IOs > 264 {
		t.Errorf("%d writes of 16 KiB, want 256, as fio, and a few at the end of the file: blockalign is without a map of used blocks", r.Jobs[0].Write.IOs)
	}
	small := false
	for _, io := range files["j.0.0"].log {
		small = small || io.n == 512
		if io.off%4096 != 0 {
			t.Errorf("%d bytes at %d", io.n, io.off)
		}
	}
	if !small {
		t.Error("no small request")
	}
}
