package kernel

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"btrlab/internal/interop"
)

// TestNumbersUnaligned: seed 004's job on a device that takes 1 ms. Together in written blocks is
// to be at least 7 times alone.
func TestNumbersUnaligned(t *testing.T) {
	interop.Measurement(t)
	text := interop.Sh(t, interop.Binary(t), "compare", "004", "--rounds", fmt.Sprint(interop.Rounds), "--json")
	var r struct {
		Rows []struct {
			Policy string
			IOPS   float64
		}
		Pairs []struct {
			Row, To string
			Ratio   float64
			Min     float64 `json:"ratio_min"`
			Max     float64 `json:"ratio_max"`
		}
	}
	if err := json.Unmarshal([]byte(text[strings.Index(text, "{"):]), &r); err != nil || len(r.Pairs) == 0 {
		t.Fatalf("compare 004: %v\n%s", err, text)
	}
	for _, row := range r.Rows {
		fmt.Printf("%-58s %.4g iops\n", "2k direct writes, depth 256, 8 jobs, "+row.Policy, row.IOPS)
	}
	p := r.Pairs[0]
	fmt.Printf("%-58s ratio %.2f (%.2f..%.2f, %d rounds)\n", p.Row+" / "+p.To+", goal 7", p.Ratio, p.Min, p.Max, interop.Rounds)
}
