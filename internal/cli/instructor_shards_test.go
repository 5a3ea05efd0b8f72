package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The table of a class is the same, graded in shards or not; two that are alike in two shards are
// named.
func TestShardsOfClass(t *testing.T) {
	class := t.TempDir()
	for name, text := range map[string]string{"ada": "lost-update = 3:1\none-lock = never\n", "bob": "one-lock = never # mine\nlost-update  =  3:1\n", "cyd": "one-step = never\n", "dee": ""} {
		if err := os.MkdirAll(filepath.Join(class, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(class, name, "answers.txt"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"lab", "grade", "0", "--all", class}
	want := verb(t, 0, args...)
	files := shards(t, 3, args...)
	if have := verb(t, 0, append([]string{"merge"}, files...)...); have != want || !strings.Contains(want, ",bob,1.00,1\n") {
		t.Errorf("have %s want %s", have, want)
	}
	if err := os.WriteFile(filepath.Join(class, "cyd", "answers.txt"), []byte("one-step = 1:1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	verb(t, 2, append(args, "--shard", "0/3", "--out", files[0])...) // another class
}
