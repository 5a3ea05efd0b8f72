package seeds_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/seeds"
)

// Each published experiment is whole: its job parses, the rows that others name are there, a row is
// fitted, and the story and the published ratio are where people look for them.
func TestSeeds(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range seeds.All() {
		if _, err := fio.Parse(s.Name, strings.NewReader(s.Job)); err != nil {
			t.Error(err)
		}
		s.Variants() // panics over a row that is not there
		ratio := s.Figure(&s.Row(s.Ratio[0]).Published) / s.Figure(&s.Row(s.Ratio[1]).Published)
		if s.Rows[0].Role() != "calibrated on" {
			t.Errorf("seed %s: nothing is fitted to the first row", s.Name)
		}
		page := "labs/reference/12-seed-" + s.Name + ".md"
		if _, err := os.Stat("../../../" + page); err != nil {
			t.Error(err)
		}
		if ratio == 0 {
			continue // predicted before it was read
		}
		digits := 3
		if ratio >= 100 {
			digits = 0
		}
		_, line, _ := strings.Cut(string(readme), "["+s.Name+"]("+page+")")
		line, _, _ = strings.Cut(line, "\n")
		if want := fmt.Sprintf("| %.*f |", digits, ratio); !strings.Contains(line, want) {
			t.Errorf("seed %s: README's table has %q, want the published ratio, %q", s.Name, line, want)
		}
	}
	if have := seeds.With(func(s *seeds.Seed) bool { return s.MiB }); have != "seeds 000, 003 and 005" {
		t.Errorf("seeds with MiB/s: %q", have)
	}
}
