package course

import (
	"strings"
	"testing"

	"btrlab/internal/study/grade"
)

// TestExploredOnce: of a class in which two have the same code it is explored once, and the table
// and the report say so.
func TestExploredOnce(t *testing.T) {
	class, l := t.TempDir(), lab(t, 4)
	const src = "package p\n\nimport \"btrlab/internal/iopath/policy\"\n\nfunc Steps() []policy.SetsizeStep { return []policy.SetsizeStep{policy.DIOWait} }\n" +
		"func Answers() map[string]string { all := map[string]string{}; return all }\n"
	for name, text := range map[string]string{"ada/setsize.go": src, "bob/setsize.go": strings.ReplaceAll(src, "all", "none"), "eve/setsize.go": strings.Replace(src, "DIOWait", "SetISize", 1)} {
		put(t, class, name, text)
	}
	var names []string
	all, err := GradeAll(t.Context(), root(t), l, class, false, Options{}, nil, func(x []Submission) error { names = append(names, x[len(x)-1].Name); return nil })
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v %v", all, err)
	}
	const shared = " (same code as ada, explored once: 1 row shared)"
	if !strings.HasSuffix(all[1].Result, shared) || strings.TrimSuffix(all[1].Result, shared) != all[0].Result || strings.Contains(all[2].Result, "same code") {
		t.Errorf("%q, %q, %q", all[0].Result, all[1].Result, all[2].Result)
	}
	r := &Report{Lab: 4, Rows: []grade.Row{{Name: "a", Shared: "ada"}, {Name: "b", Shared: "ada"}, {Name: "text"}}}
	if s := text(r); !strings.Contains(strings.Join(strings.Fields(s), " "), "The code is that of ada but for comments, layout and local names, and was explored once; shared with it: a, b.") {
		t.Error(s)
	}
}
