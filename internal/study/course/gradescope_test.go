package course

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/study/grade"
	"btrlab/internal/study/judges"
)

// TestAutograderFind: the folder with the lab's file, which may lie in a whole tree that somebody
// hands in.
func TestAutograderFind(t *testing.T) {
	for _, tt := range []struct{ files, want string }{
		{"setsize.go", "."},
		{"setsize.go labs/04-truncate-race/setsize.go", "."},
		{"mine/setsize.go", "mine"},
		{"btrlab/labs/04-truncate-race/setsize.go btrlab/a/setsize.go btrlab/z/setsize.go", "btrlab/labs/04-truncate-race"},
		{"other.go", "."},
		{"", "."},
	} {
		dir := t.TempDir()
		for _, f := range strings.Fields(tt.files) {
			put(t, dir, f, "package p\n")
		}
		if got, err := lab(t, 4).find(dir); err != nil || got != filepath.Join(dir, filepath.FromSlash(tt.want)) {
			t.Errorf("%q: have %s, %v, want %s", tt.files, got, err, tt.want)
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	if got, err := lab(t, 4).find(none); err != nil || got != none {
		t.Errorf("have %s, %v", got, err)
	}
}

// TestAutograderFindEnds: a submission of very many folders is none to be searched, and that is the
// student's matter.
func TestAutograderFindEnds(t *testing.T) {
	a := Autograder{Base: t.TempDir()}
	for i := range 70 {
		for k := range 60 {
			if err := os.MkdirAll(filepath.Join(a.Base, "submission", fmt.Sprint(i), fmt.Sprint(k)), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	r, err := a.report(t.Context(), lab(t, 4))
	if err != nil || r.Score != 0 || len(r.Rows) != 1 || r.Rows[0].Result != "the submission: has more than 4096 folders, want at most that" {
		t.Errorf("have %+v, %v", r, err)
	}
}

// TestAutograderStudent: the id is the field of the first user that the teacher has chosen.
func TestAutograderStudent(t *testing.T) {
	for _, tt := range []struct{ field, metadata, want, wrong string }{
		{"email", `{"users": [{"email": "ada@x.edu", "id": 17, "name": "Ada"}, {"email": "bob@x.edu"}]}`, "ada@x.edu", ""},
		{"id", `{"users": [{"email": "ada@x.edu", "id": 1234567}]}`, "1234567", ""},
		{"name", `{"users": [{"name": "  Ada "}]}`, "Ada", ""},
		{"email", `{"users": [{"name": "Ada"}]}`, "", `users[0] has no "email"`},
		{"email", `{"users": []}`, "", `users[0] has no "email"`},
		{"email", `[]`, "", "submission_metadata.json: json"},
	} {
		dir := t.TempDir()
		put(t, dir, "submission_metadata.json", tt.metadata)
		got, err := Autograder{Base: dir, Student: tt.field}.student()
		if got != tt.want || (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%s of %s: have %q, %v, want %q %q", tt.field, tt.metadata, got, err, tt.want, tt.wrong)
		}
	}
}

// TestReplayCommand: the command of a row can be pasted where the grade was asked for, whatever the
// folder is called.
func TestReplayCommand(t *testing.T) {
	l := &Lab{About: &judges.About{N: 4}}
	for _, c := range [][2]string{
		{"", "btrlab lab grade 4 --replay truncate-race=11:1"},
		{"../mine", "btrlab lab grade 4 --dir ../mine --replay truncate-race=11:1"},
		{"/home/ada/my work", "btrlab lab grade 4 --dir '/home/ada/my work' --replay truncate-race=11:1"},
	} {
		if have := l.replay(c[0], "truncate-race", "11:1"); have != c[1] {
			t.Errorf("%q: have %s want %s", c[0], have, c[1])
		}
	}
}

// TestHome: a student replays in the lab's own folder, not in the autograder's.
func TestHome(t *testing.T) {
	r := Report{Rows: []grade.Row{{Replay: "btrlab lab grade 4 --dir /autograder/submission --replay truncate-race=11:1"}, {Replay: "btrlab replay a"}, {}}}
	r.home("/autograder/submission")
	for i, want := range []string{"btrlab lab grade 4 --replay truncate-race=11:1", "btrlab replay a", ""} {
		if r.Rows[i].Replay != want {
			t.Errorf("have %q, want %q", r.Rows[i].Replay, want)
		}
	}
}
