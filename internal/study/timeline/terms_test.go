package timeline

import (
	"testing"

	"btrlab/internal/policy"
	"btrlab/internal/study/scenario"
)

// Every word that the default order of a scenario shows has a sentence: its columns, the classes of
// its steps and their functions.
func TestTerms(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: runs every scenario")
	}
	for _, s := range scenario.All() {
		pol := "unlocked"
		if len(s.Policies) > 0 {
			pol = s.Policies[0]
		}
		tr, err := scenario.Replay(s, policy.MustParse(pol), "", false)
		if err != nil {
			t.Fatal(err)
		}
		has := func(from map[string]string, word string) {
			if from[word] == "" && word != "" {
				t.Errorf("%s shows %q, which nothing explains", s.Name, word)
			}
		}
		for _, c := range tr.Columns {
			has(columnTerms, c)
		}
		for i := range tr.Steps {
			has(lockTerms, tr.Steps[i].Class)
			has(functionTerms, tr.Steps[i].Where)
		}
	}
}
