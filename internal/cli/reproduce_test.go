package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	a := run("--json", "--save-calibration", cal)
	if b := run("--json", "--calibration", cal); a != b {
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
	if len(r.Rows) != 8 || r.Rows[2].Role != "ablation" || r.Rows[0].Role != "calibrated on" || r.Rows[1].Role != "predicted" || r.Rows[1].Published.IOPS != 94242 ||
		len(r.Rows[0].Simulated.Clat) != 17 || len(r.Rows[0].Errors) != 22 || r.Calibration["seed"] != 1.0 {
		t.Errorf("%s", a)
	}
	text := strings.Join(strings.Fields(run()), " ")
	for _, want := range []string{"lock calibrated", "unlocked predicted", "clat p99.99", "error", "not verified", `"cpu_factor"`, "What the prediction rests on"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	var out, errw bytes.Buffer
	if code := Main([]string{"reproduce", "005"}, strings.NewReader(""), &out, &errw); code != 2 {
		t.Errorf("seed 005: exit %d", code)
	}
	if err := os.WriteFile(cal, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code := Main([]string{"reproduce", "002", "--calibration", cal}, strings.NewReader(""), &out, &errw); code != 1 {
		t.Errorf("bad calibration: exit %d", code)
	}
}
