package cli

import (
	"os"
	"strings"
	"testing"
)

// TestVerbFiles: each verb is made in the file of its name; verb grade of lab is labGrade in
// lab_grade.go.
func TestVerbFiles(t *testing.T) {
	names := []string{"merge"} // of explore
	for _, c := range (&app{}).commands().Commands() {
		if c.Name() != "completion" { // of cobra
			names = append(names, c.Name())
		}
	}
	if len(names) < 20 {
		t.Fatalf("have %d verbs, want all", len(names))
	}
	made := func(file, name string) {
		b, err := os.ReadFile(file + ".go")
		if err != nil {
			t.Errorf("verb %s has no file: %v", name, err)
		} else if !strings.Contains(string(b), "func (a *app) "+name+"() *cobra.Command {") {
			t.Errorf("%s.go does not make verb %s", file, name)
		}
	}
	for _, name := range names {
		made(name, name)
	}
	for _, c := range (&app{}).lab().Commands() {
		made("lab_"+c.Name(), "lab"+strings.ToUpper(c.Name()[:1])+c.Name()[1:])
	}
}
