package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/sched/cost"
	"btrlab/internal/testing/need"
)

// A calibration prints a table and writes a file that the other verbs take: with it virtual time
// gives other figures, the same every time. What cannot be is a usage error.
func TestCalibrate(t *testing.T) {
	need.Long(t)
	costs := filepath.Join(t.TempDir(), "costs.json")
	run := func(want int, args ...string) (string, string) {
		t.Helper()
		var out, errw bytes.Buffer
		in := strings.NewReader("[j]\nrw=randwrite\nbs=4k\nsize=4m\nruntime=20ms\ntime_based\nnorandommap\nfilename=f\n")
		if code := Main(args, in, &out, &errw); code != want {
			t.Fatalf("%v: exit %d, want %d: %s", args, code, want, errw.String())
		}
		return out.String(), errw.String()
	}
	text, _ := run(0, "calibrate", "--rounds", "1", "--passes", "1", "--loop", "1ms", "--size", "16M", "--out", costs)
	written, err := os.ReadFile(costs)
	table := cost.Default()
	if err = errors.Join(err, table.Load(bytes.NewReader(written))); err != nil {
		t.Errorf("the file that was written cannot be read: %v", err)
	}
	for _, want := range []string{"range-tree", "idle-exit", "measured", "write 64k"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	var r struct {
		Costs []struct{ Name string }
	}
	text, _ = run(0, "calibrate", "--rounds", "1", "--passes", "1", "--loop", "1ms", "--size", "16M", "--json")
	if err := json.Unmarshal([]byte(text), &r); err != nil || len(r.Costs) < 15 {
		t.Errorf("%v: %s", err, text)
	}
	bench := []string{"bench", "-", "--runtime", "vtime", "--nocow", "--json"}
	plain, _ := run(0, bench...)
	// A loop of a millisecond on a busy machine measures anything: figures that are judged come
	// from a file that does not vary.
	if err := os.WriteFile(costs, []byte(`{"costs": [{"name": "copy", "ns": 0.31}, {"name": "cold", "ns": 400}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	here, _ := run(0, append(bench, "--costs", costs)...)
	again, _ := run(0, append(bench, "--costs", costs)...)
	if here == plain || here != again {
		t.Errorf("with the costs of this machine: other figures than without: %v, the same twice: %v; want both", here != plain, here == again)
	}
	if linux, _ := run(0, append(bench, "--set", "numjobs=4")...); linux != "" {
		if ours, _ := run(0, append(bench, "--set", "numjobs=4", "--locks", "go")...); ours == linux {
			t.Error("Go's locks wait as Linux's do")
		}
	}
	run(2, append(bench, "--locks", "dos")...)
	run(0, "reproduce", "002", "--size", "16M", "--runtime-seconds", "0.02", "--costs", costs)
	run(2, "bench", "-", "--costs", costs) // real time has no costs
	if _, why := run(1, "bench", "-", "--runtime", "vtime", "--costs", costs+"x"); !strings.Contains(why, "costs.jsonx") {
		t.Errorf("a file that is not there: %s", why)
	}
	run(2, "calibrate", "--rounds", "0")
	run(2, "calibrate", "--size", "1M")
}
