package scenario

import (
	"slices"
	"strings"
	"testing"
)

// Each scenario has a group, so that no list leaves one out; each group and each name in it is of
// use, and no group is a heap.
func TestGroups(t *testing.T) {
	by := Grouped()
	if l := by[""]; len(l) > 0 {
		t.Errorf("without a group: %s and %d others", l[0].Name, len(l)-1)
	}
	n := 0
	var named []string
	for _, g := range Groups {
		n += len(by[g.Name])
		if len(by[g.Name]) == 0 || len(by[g.Name]) > 20 || g.About == "" {
			t.Errorf("group %s: %d scenarios, %q", g.Name, len(by[g.Name]), g.About)
		}
		for _, x := range g.Names {
			begin, open := strings.CutSuffix(x, "*")
			used := slices.ContainsFunc(by[g.Name], func(s *Scenario) bool { return s.Name == x || open && strings.HasPrefix(s.Name, begin) })
			if !used || slices.Contains(named, x) {
				t.Errorf("group %s: %s is no scenario of it, or is there twice", g.Name, x)
			}
			named = append(named, x)
		}
	}
	if n != len(All()) {
		t.Errorf("the groups have %d scenarios, want %d", n, len(All()))
	}
}
