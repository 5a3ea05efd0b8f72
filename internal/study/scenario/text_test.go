package scenario

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Every scenario of the table can be printed, read, changed and run by somebody who does not change
// our source: what is read back is the same value.
func TestTextRoundTrip(t *testing.T) {
	for _, s := range append(All(), Random(7, 50)...) {
		text := s.Text()
		have, err := Parse("x.scenario", []byte(text))
		if err != nil {
			t.Errorf("%s: %v\n%s", s.Name, err, text)
			continue
		}
		want := *s
		want.Image = ""
		if !reflect.DeepEqual(*have, want) {
			t.Errorf("%s: read back as another one:\nhave %+v\nwant %+v\n%s", s.Name, *have, want, text)
		}
	}
	if s, err := Parse("example", []byte(TextExample)); err != nil {
		t.Errorf("the example: %v", err)
	} else if x, _ := Lookup("three-truncate"); !reflect.DeepEqual(s.Tasks, x.Tasks) || !reflect.DeepEqual(s.File, x.File) || s.Rule != x.Rule {
		t.Errorf("the example is not three-truncate:\n%s", s.Text())
	}
}

// An error names the line and what is wanted there.
func TestTextErrors(t *testing.T) {
	const head = "file --size 16K\n"
	for _, tt := range []struct{ text, want string }{
		{"", `f.scenario: have no file, want a line that begins with file: file --size 16K`},
		{head, `f.scenario: have no task, want a line "task NAME", and its operations below it`},
		{head + "task a\n", `f.scenario: have task a without an operation, want a line below it: write --offset 0 --length 4K`},
		{"file --siez 16K\n", `f.scenario:1: have "file --siez 16K", want for "--siez" some of: --size`},
		{"file --size 16K --size 8K\n", `--size once`},
		{"file --size 17M\n", `want --size and bytes from 0 to 16M: 8192, or 8K`},
		{"file --size -1\n", `want --size and bytes from 0 to 16M`},
		{"file --size\n", `want a value after --size`},
		{"file --nocow\n", `want --size as well`},
		{"fiel --size 1\n", `f.scenario:1: have "fiel --size 1", want another first word (did you mean "file"?)`},
		{"write --offset 0 --length 1\n", `want operations below a line "task NAME"`},
		{head + "switch i_rwsme\n", `f.scenario:2: have "switch i_rwsme", want another lock class than "i_rwsme" (did you mean "i_rwsem"?)`},
		{head + "rule --write all --read page --sizes with\n", `want byte, page, batch, extent or request`},
		{head + "rule --write page --read page --sizes yes\n", `want --sizes and one of off, apart, with`},
		{head + "preemptions two\n", `want preemptions and a number from 1 to 1000000`},
		{head + "method random\n", `want method and one of bound, dpor, state, naive`},
		{head + "policies lokced\n", `want other policies: unknown policy "lokced"`},
		{head + "cached --offset 8K --length 16K\ntask a\nfsync\n", `f.scenario: have pages in memory up to 24K, want cached and dirty inside the file`},
		{head + "name a b\n", `want name and a word that a command line can have`},
		{head + "profile raid1\n", `want profile and one of raid5, raid6`},
		{head + "deep yes\n", `want deep alone`},
		{head + "task a\n  wriet --offset 0\n", `f.scenario:3: have "wriet --offset 0", want an operation (did you mean "write"?)`},
		{head + "\n# a comment\ntask a\n  write --offset 0\n", `f.scenario:5: have "write --offset 0", want --length as well`},
		{head + "task a\n  write --offset 0 --length 0\n", `want --length of a byte or more`},
		{head + "task a\n  truncate --length 0\n", `want for "--length" some of: --size`},
		{head + "task a\n  fsync --second\n", `want a line "second SIZE" before the tasks: there is no second file`},
		{head + "task a\n  limit --length 4K\n", `want a line "quota SIZE" before the tasks`},
		{head + "task a\n  write --offset 0 --length 4K --queued\n", `want --direct with --queued`},
		{head + "task a\n  chmod --value rw\n", `want --value and permissions in octal: 640`},
		{head + "task a\n  write --offset 0 --length 4K --ring 2\n", `want a submission of N requests`},
		{head + "task a\nfsync\ntask a\nfsync\n", `f.scenario:4: have "task a", want task and a name that no other task has`},
		{head + "task a\n  unlink --from /file\ntask b\n  unlink --from /second\n", `want all changes of names in one task`},
		{head + "task a\n" + strings.Repeat("fsync\n", maxOps+1), `f.scenario:27: have "fsync", want 24 operations at most, of all tasks`},
	} {
		_, err := Parse("f.scenario", []byte(tt.text))
		var bad *TextError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: have %v want %s", tt.text, err, tt.want)
		}
	}
}

// No text ends the reader, and what is read is printed and read as the same.
func FuzzText(f *testing.F) {
	for _, s := range All() {
		f.Add(s.Text())
	}
	f.Add(TextExample)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse("x", []byte(text))
		if err != nil {
			return
		}
		if have, err := Parse("x", []byte(s.Text())); err != nil || !reflect.DeepEqual(have, s) {
			t.Errorf("%v\n%q\n%s", err, text, s.Text())
		}
	})
}

// TestReadFile: a file may come from another, and its names are printed: what a terminal obeys is
// refused with its line, and a file without an end before it fills the memory.
func TestReadFile(t *testing.T) {
	const rest = "file --size 16K\r\n\r\ntask A\n\twrite --offset 0 --length 4K\n"
	path := filepath.Join(t.TempDir(), "s")
	for _, k := range []struct{ text, want string }{
		{rest, ""},
		{"# \u00fc\n" + rest, ""},
		{"name \x1b[2J\n" + rest, `s:1: have "name \x1b[2J", want characters that can be printed`},
		{rest + "\ntask \u202eB\n\tfsync\n", `s:6: have "task \u202eB", want characters that can be printed`},
		{rest + "\n# \xff\n", `s:6: have "# \xff", want characters that can be printed`},
		{rest + strings.Repeat("#\n", maxText), "s: have more than 65536 bytes, want 65536 bytes at most"},
	} {
		if err := os.WriteFile(path, []byte(k.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadFile(path)
		have := ""
		if err != nil {
			have = strings.TrimPrefix(err.Error(), filepath.Dir(path)+"/")
		}
		if have != k.want {
			t.Errorf("%.30q: have %q want %q", k.text, have, k.want)
		}
	}
	if _, err := os.Stat("/dev/zero"); err == nil {
		var text *TextError
		if _, err := ReadFile("/dev/zero"); !errors.As(err, &text) {
			t.Errorf("a file without an end: %v", err)
		}
	}
}
