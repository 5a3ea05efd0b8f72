package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/measure/stats"
)

// Rounds is how often a measurement asks both, in turns.
const Rounds = 5

// Numbers skips the test where nothing is to be measured, or Linux is not there to be measured.
func Numbers(t *testing.T, tools ...string) {
	t.Helper()
	Measurement(t)
	Linux(t, tools...)
}

// Measurement skips the test but for make bench.
func Measurement(t *testing.T) {
	t.Helper()
	if os.Getenv("BTRLAB_NUMBERS") != "1" {
		t.Skip("a measurement; make bench runs it")
	}
}

// Spread prints the ratio of the rounds of a to those of b.
func Spread(t *testing.T, what string, a []float64, other string, b []float64, unit string) {
	t.Helper()
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	mid, lo, hi := stats.Spread(ratios)
	fmt.Printf("%-58s btrlab %.4g %s, %s %.4g %s, ratio %.2f (%.2f..%.2f, %d rounds)\n",
		what, stats.Median(a), unit, other, stats.Median(b), unit, mid, lo, hi, len(ratios))
}

// Binary builds the program once: what is measured is what people run.
func Binary(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "btrlab")
	Sh(t, "go", "build", "-o", bin, "btrlab/cmd/btrlab")
	return bin
}

// FioIOPS reads the write iops out of fio's JSON, which is ours too.
func FioIOPS(t *testing.T, text string) float64 {
	t.Helper()
	var r struct {
		Jobs []struct {
			Write struct {
				IOPS float64 `json:"iops"`
			} `json:"write"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal([]byte(text[strings.Index(text, "{"):]), &r); err != nil || len(r.Jobs) == 0 {
		t.Fatalf("fio's JSON: %v, %d jobs\n%s", err, len(r.Jobs), text)
	}
	sum := 0.0
	for _, j := range r.Jobs {
		sum += j.Write.IOPS
	}
	return sum
}
