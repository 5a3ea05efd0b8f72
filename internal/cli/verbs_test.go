package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerbFiles: each verb is made in the file of its name in the room that it belongs to, or it is
// a row of image/small.go; verb grade of lab is labGrade in learn/lab_grade.go.
func TestVerbFiles(t *testing.T) {
	small, err := os.ReadFile("image/small.go")
	if err != nil {
		t.Fatal(err)
	}
	made := func(file, name string) {
		t.Helper()
		where, err := filepath.Glob("*/" + file + ".go")
		if err != nil {
			t.Fatal(err)
		}
		if name == "man" || name == "merge" { // they are about all of them
			where = append(where, name+".go")
		}
		if strings.Contains(string(small), "use: \""+name+" ") {
			where = append(where, "image/small.go")
		}
		if len(where) != 1 {
			t.Errorf("verb %s has %d files, want one: %q", name, len(where), where)
			return
		}
		b, err := os.ReadFile(where[0])
		if err != nil {
			t.Fatal(err)
		}
		if where[0] != "image/small.go" && !strings.Contains(string(b), ") "+name+"() *cobra.Command {") {
			t.Errorf("%s does not make verb %s", where[0], name)
		}
	}
	n := 0
	for _, c := range newCmdline(nil, nil, nil).commands().Commands() {
		switch n++; c.Name() {
		case "completion": // of cobra
		case "mkfs.btrfs": // the verb mkfs by another name: no Go name has a dot
			b, err := os.ReadFile("image/mkfsprogs.go")
			if err != nil || !strings.Contains(string(b), ") mkfsProgs() *cobra.Command {") {
				t.Errorf("image/mkfsprogs.go does not make verb %s: %v", c.Name(), err)
			}
		case "lab":
			for _, c := range c.Commands() {
				made("lab_"+c.Name(), "lab"+strings.ToUpper(c.Name()[:1])+c.Name()[1:])
			}
			made("lab", "lab")
		default:
			made(c.Name(), c.Name())
		}
	}
	if n < 20 {
		t.Fatalf("have %d verbs, want all", n)
	}
}
