package practice

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// The key of the quizzes is right: the explorer, which judges a student's answer, judges it.
func TestQuizKey(t *testing.T) {
	text, err := os.ReadFile("../../../labs/guide/instructor/quizzes.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| \d \| (\d) \| (\w+) \| (\d+) \| (.*) \|$`).FindAllStringSubmatch(string(text), -1)
	if len(rows) != 17 {
		t.Fatalf("have %d questions, want 17", len(rows))
	}
	for _, r := range rows {
		level, _ := strconv.Atoi(r[1])
		seed, _ := strconv.ParseUint(r[3], 10, 64)
		q, err := New(seed, level, Kind(r[2]))
		if err != nil {
			t.Fatal(err)
		}
		v, err := q.Judge(r[4], Options{})
		if err != nil {
			t.Fatal(err)
		}
		if !v.Right {
			t.Errorf("level %s, %s, seed %s: %q is wrong: %s, %s", r[1], r[2], r[3], r[4], v.Says, v.Count)
		}
	}
}
