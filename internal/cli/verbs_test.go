package cli

import (
	"os"
	"strings"
	"testing"
)

// TestVerbFiles: each verb is made in the file of its name. The verbs of lab share lab.go.
func TestVerbFiles(t *testing.T) {
	names := []string{"merge"} // of explore
	for _, c := range (&app{}).commands().Commands() {
		names = append(names, c.Name())
	}
	if len(names) < 20 {
		t.Fatalf("have %d verbs, want all", len(names))
	}
	for _, name := range names {
		b, err := os.ReadFile(name + ".go")
		if err != nil {
			t.Errorf("verb %s has no file: %v", name, err)
		} else if !strings.Contains(string(b), "func (a *app) "+name+"() *cobra.Command {") {
			t.Errorf("%s.go does not make verb %s", name, name)
		}
	}
}
