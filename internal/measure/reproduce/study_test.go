package reproduce_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"btrlab/internal/measure/reproduce"
)

// Seed 001 in a short run: the same bytes each time, the calibrated rows where they were fitted, the predicted ones within a tenth of what
// was published, and so the ratio. A row that lost its policy or its engine would be another row's.
func TestSeed001(t *testing.T) {
	o := reproduce.Options{Calibration: reproduce.Seed001.Calibration, Seconds: 0.2}
	var first []byte
	for range 2 {
		r, err := reproduce.Seed001.Run(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range r.Rows {
			bound := 0.1
			if row.Fits != "" {
				bound = 0.02
			}
			if e := row.Simulated.IOPS/row.Published.IOPS - 1; math.Abs(e) > bound || math.Abs(e-row.Errors["iops"]) > 1e-4 {
				t.Errorf("%s, %s: %.0f iops, published %.0f; error %.3f, reported %.3f", row.Name, row.Role, row.Simulated.IOPS, row.Published.IOPS, e, row.Errors["iops"])
			}
			if (row.Simulated.Slat > 0) != (row.Name != "psync") || (row.Role == "predicted") != (row.Fits == "") {
				t.Errorf("%s: slat %g us, role %s", row.Name, row.Simulated.Slat, row.Role)
			}
		}
		x := r.Ratio
		if want := r.Rows[2].Simulated.IOPS / r.Rows[1].Simulated.IOPS; math.Abs(x.Simulated-want) > 1e-3 || math.Abs(x.Published-134./55) > 1e-3 || math.Abs(x.Error) > 0.1 {
			t.Errorf("ratio %+v, want %.3f and 2.436", x, want)
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
		} else if !bytes.Equal(first, b) {
			t.Errorf("two runs differ:\n%s\n%s", first, b)
		}
		var text, page strings.Builder
		if err := r.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if err := r.WriteHTML(&page); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"without patch", "134,000", "82ns"} {
			if !strings.Contains(text.String(), want) || !strings.Contains(page.String(), want) {
				t.Errorf("%q is missing:\n%s\n%s", want, text.String(), page.String())
			}
		}
	}
}

// The fit finds the knobs by their own rows and by nothing else: rows that are predicted may say what they like.
func TestFit001(t *testing.T) {
	s := reproduce.Seed001
	s.Rows = append([]reproduce.StudyRow(nil), s.Rows...)
	for i := range s.Rows {
		if s.Rows[i].Fits == "" {
			s.Rows[i].Published.IOPS = 1
		}
	}
	o := reproduce.Options{Calibration: s.Calibration, Seconds: 0.02}
	o.Calibration.CPU, o.Calibration.WakeupNs = 5, 20
	var told []string
	c, err := s.Fit(o, 14, func(line string) { told = append(told, line) })
	if err != nil {
		t.Fatal(err)
	}
	if len(told) != 28 || math.Abs(c.CPU/s.Calibration.CPU-1) > 0.05 || math.Abs(c.WakeupNs/s.Calibration.WakeupNs-1) > 0.2 {
		t.Errorf("cpu_factor %g, wakeup_ns %g after %d runs, want about %g and %g after 28", c.CPU, c.WakeupNs, len(told), s.Calibration.CPU, s.Calibration.WakeupNs)
	}
}
