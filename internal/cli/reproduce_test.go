package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"btrlab/internal/testing/need"
)

// A scaled-down reproduction: the same bytes twice, both rows beside the published ones, and the
// calibration that was used is what --calibration takes.
func TestReproduce(t *testing.T) {
	need.Long(t)
	cal := filepath.Join(t.TempDir(), "cal.json")
	run := func(args ...string) string {
		var out, errw bytes.Buffer
		args = append([]string{"reproduce", "002", "--size", "64M", "--runtime-seconds", "0.2"}, args...)
		if code := Main(args, strings.NewReader(""), &out, &errw); code != 0 {
			t.Fatalf("%v: exit %d: %s", args, code, errw.String())
		}
		return out.String()
	}
	a := run("--all", "--json", "--save-calibration", cal)
	if b := run("--all", "--json", "--calibration", cal); a != b {
		t.Errorf("not the same twice:\n%s\n%s", a, b)
	}
	var r struct {
		Rows []struct {
			Role      string
			Published struct{ IOPS float64 }
			Simulated struct {
				IOPS float64
				Clat []float64 `json:"clat_percentiles_us"`
			}
			Errors map[string]float64 `json:"relative_errors"`
		}
		Calibration map[string]any
	}
	if err := json.Unmarshal([]byte(a), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 10 || r.Rows[2].Role != "ablation" || r.Rows[0].Role != "calibrated on" || r.Rows[1].Role != "predicted" || r.Rows[1].Published.IOPS != 94242 ||
		len(r.Rows[0].Simulated.Clat) != 17 || len(r.Rows[0].Errors) != 22 || r.Calibration["seed"] != 1.0 {
		t.Errorf("%s", a)
	}
	text := strings.Join(strings.Fields(run()), " ")
	if strings.Contains(text, "drain first not") || strings.Contains(text, "drain first 1") {
		t.Errorf("without --all there are further rows:\n%s", text)
	}
	for _, want := range []string{"--all adds 8 rows: drain first, throttle out,", "lock calibrated", "unlocked predicted", "clat p99.99", "error", "not verified", `"cpu_factor"`, "What the prediction rests on"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	var out, errw bytes.Buffer
	if code := Main([]string{"reproduce", "999"}, strings.NewReader(""), &out, &errw); code != 2 {
		t.Errorf("an unknown seed: exit %d", code)
	}
	if err := os.WriteFile(cal, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code := Main([]string{"reproduce", "002", "--calibration", cal}, strings.NewReader(""), &out, &errw); code != 1 {
		t.Errorf("bad calibration: exit %d", code)
	}
}

// TestReproduceProfiles: a lock profile of a run in virtual time has the waits of its own clock,
// each under the name of its lock and the policy of its row. The two rows of seed 003 are told
// apart by nothing else.
func TestReproduceProfiles(t *testing.T) {
	dir := t.TempDir()
	lock, cpu := filepath.Join(dir, "lock"), filepath.Join(dir, "cpu")
	var out, errw bytes.Buffer
	args := []string{"reproduce", "003", "--size", "16M", "--runtime-seconds", "0.1", "--lockprofile", lock, "--cpuprofile", cpu}
	if code := Main(args, strings.NewReader(""), &out, &errw); code != 0 {
		t.Fatalf("exit %d: %s", code, errw.String())
	}
	read := func(path string) *profile.Profile {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		p, err := profile.ParseData(b)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	nanos := map[string]int64{}
	for _, s := range read(lock).Sample {
		for _, policy := range s.Label["policy"] {
			for _, class := range s.Label["lock"] {
				nanos[policy+" "+class] += s.Value[1]
			}
		}
	}
	for _, policy := range []string{"fsync-5.17", "fsync-5.18"} {
		// eight writers wait for most of a tenth of a second, and no longer
		if n := nanos[policy+" log_wait"]; n < 1e7 || n > 8e8 {
			t.Errorf("%s: waits for log_wait %d ns, of %v", policy, n, nanos)
		}
		if nanos[policy+" tree_log"] == 0 {
			t.Errorf("%s: no waits for tree_log, of %v", policy, nanos)
		}
	}
	if len(read(cpu).SampleType) == 0 {
		t.Error("a CPU profile of nothing")
	}
	for _, verb := range []string{"explore", "crash", "put", "get", "check", "mkfs"} {
		out.Reset()
		if code := Main([]string{verb, "--help"}, strings.NewReader(""), &out, &errw); code != 0 || !strings.Contains(out.String(), "--cpuprofile") {
			t.Errorf("%s --help: exit %d, no --cpuprofile", verb, code)
		}
	}
}
