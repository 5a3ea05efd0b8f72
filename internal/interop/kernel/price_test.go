package kernel

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/interop"
	"btrlab/internal/measure/linuxprice"
	"btrlab/internal/sched"
	"btrlab/internal/testing/need"
)

// prices measures the running kernel on an image in memory.
func prices(t *testing.T, o linuxprice.Options) *linuxprice.Result {
	t.Helper()
	interop.Linux(t)
	dir, err := os.MkdirTemp("/dev/shm", "btrlab")
	interop.Must(t, err)
	defer os.RemoveAll(dir)
	img := filepath.Join(dir, "img")
	interop.Must(t, os.WriteFile(img, nil, 0o600))
	interop.Must(t, os.Truncate(img, 3<<30))
	interop.Sh(t, "mkfs.btrfs", "-q", img)
	var r *linuxprice.Result
	interop.Mounted(t, img, "", func(dir string) {
		var err error
		o.Dir = dir
		if r, err = linuxprice.Run(sched.NewTask("prices"), o); err != nil {
			need.Without(t, "way to sample the kernel's stacks ("+err.Error()+")")
		}
	})
	var b strings.Builder
	interop.Must(t, r.WriteText(&b))
	t.Log("\n" + b.String())
	for line := range strings.Lines(b.String()) {
		if n := len(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	return r
}

// The kernel's prices come from samples in functions that it has and from steps that were counted:
// what each job does more than anything is measured also in a second.
func TestLinuxPrices(t *testing.T) {
	r := prices(t, linuxprice.Options{Seconds: 1, Rounds: 1})
	at := map[string]linuxprice.Line{}
	for _, l := range r.Lines {
		at[l.Name] = l
		if (l.Linux > 0) == (l.Why != "") || l.Source == "" {
			t.Errorf("%+v: want a price or a reason, and the source of the model's", l)
		}
	}
	// Within a factor of ten of what was measured once, on any machine: a count or a list of
	// functions that is another one's is further off.
	for name, ns := range map[string]float64{"range-tree": 380, "check-block": 26_000} {
		if have := at[name].Linux; have < ns/10 || have > ns*10 {
			t.Errorf("%s: %.4g ns, want about %.4g: %+v", name, have, ns, at[name])
		}
	}
	if l := r.Log; l == nil || l.Fsyncs < 10 || l.Each < 3 || l.Each > 60 || l.HeldUs <= 0 {
		t.Errorf("locks of logs: %+v, want some of ten for an fsync", r.Log)
	}
	if r.Flushes == 0 || r.FlushUs <= 0 {
		t.Errorf("%d flushes of %g us", r.Flushes, r.FlushUs)
	}
}

// TestNumbersLinuxPrices prints the list, for make bench.
func TestNumbersLinuxPrices(t *testing.T) {
	interop.Measurement(t)
	prices(t, linuxprice.Options{})
}
