package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// shell runs a command line with the standard input in, and gives the exit code and both outputs.
func shell(t *testing.T, in string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Main(args, strings.NewReader(in), &o, &e)
	return code, o.String(), e.String()
}

// The verbs of one script see each other's work through the caches of one open image; after it the
// image has it, and is clean. A line that fails ends the script with its number and exit code 1,
// and what came before is kept.
func TestSh(t *testing.T) {
	dir := t.TempDir()
	img, script := filepath.Join(dir, "d.img"), filepath.Join(dir, "script")
	if code, _, e := shell(t, "", "mkfs", "--size", "256M", img); code != 0 {
		t.Fatal(e)
	}
	lines := `# one file, its copies, and a snapshot
mkdir /dir
put - /dir/a
write --offset 4k --length 4k --data ab /dir/a
reflink /dir/a /dir/b
snapshot -r / /snap
write --data XYZ /dir/b
fsync /dir/b
drop-caches
cat --offset 4094 --length 4 /dir/a
ls /dir
sync
check --no-data
rm /dir/nothing
mkdir /not-made
`
	if err := os.WriteFile(script, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := shell(t, strings.Repeat("0123456789", 500), "sh", img, script)
	if code != 1 || !strings.HasPrefix(out, "78aba\nb\n") && !strings.HasPrefix(out, "45aba\nb\n") || !strings.Contains(errs, "script: line 14: ") || !strings.Contains(errs, "/dir/nothing") {
		t.Fatalf("exit code %d\n%s\n%s", code, out, errs)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"cat", "--length", "5", img + ":/dir/b"}, "XYZ34"},
		{[]string{"cat", "--length", "5", img + ":/dir/a"}, "01234"},
		{[]string{"cat", "--length", "5", img + ":/snap/dir/b"}, "01234"},
		{[]string{"ls", img}, "dir\nsnap\n"},
		{[]string{"subvolume", "list", img}, "256 generation"},
		{[]string{"check", img}, img + ": clean"},
	} {
		if code, out, errs := shell(t, "", c.args...); code != 0 || !strings.HasPrefix(out, c.want) {
			t.Errorf("%v: exit code %d, %q, want %q\n%s", c.args, code, out, c.want, errs)
		}
	}
}

// With --json every line gives a line; with --keep-going a bad one does not end the script.
func TestShJSON(t *testing.T) {
	img := filepath.Join(t.TempDir(), "d.img")
	if code, _, e := shell(t, "", "mkfs", "--size", "256M", img); code != 0 {
		t.Fatal(e)
	}
	in := "mkdir /d\n\nstat /d\nstat /none\nfrobnicate\nwrite --length 4k /d\nls\npolicy\nwrite 'x\n" +
		"touch /d/n\nchattr +C /d/n\nwrite --length 8k /d/n\nwrite --direct --nowait --length 4k /d/n\nrm -r /d/n\n"
	code, out, errs := shell(t, in, "sh", "--json", "--keep-going", "--policy", "modern", img)
	if code != 1 || errs != "" {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	var have []string
	d := json.NewDecoder(strings.NewReader(out))
	for d.More() {
		var r struct {
			Verb, Errno, Place, Reason, Error, Output string
			Result                                    any
		}
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		what := r.Verb + " " + r.Errno
		if r.Place != "" {
			what += " at " + r.Place + ": " + r.Reason
		}
		switch {
		case r.Result != nil:
			what += "result"
		case r.Output != "":
			what += strings.TrimSpace(r.Output)
		case r.Error != "" && r.Errno == "":
			what += "error"
		}
		have = append(have, what)
	}
	want := []string{"mkdir ", "stat result", "stat ENOENT", "frobnicate error", "write EISDIR", "ls result", "policy modern", " error",
		"touch ", "chattr ", "write ", "write EAGAIN at invalidate: a page of the range is in memory", "rm "}
	if !slices.Equal(have, want) {
		t.Errorf("have %q\nwant %q\n%s", have, want, out)
	}
	if code, _, errs := shell(t, "mkdir -z /x\nmkdir /y\n", "sh", img); code != 1 || !strings.Contains(errs, "line 1: ") || !strings.Contains(errs, "see 'help mkdir'") {
		t.Errorf("a bad flag: exit code %d, %s", code, errs)
	}
	if code, out, _ := shell(t, "quit\nmkdir /y\n", "sh", img); code != 0 || out != "" {
		t.Errorf("quit: exit code %d, %s", code, out)
	}
	if _, out, _ := shell(t, "", "ls", img); out != "d\n" {
		t.Errorf("the image has %q, want d", out)
	}
}

// A program that writes a line and waits for its result has it before it writes the next one.
func TestShAnswers(t *testing.T) {
	img := filepath.Join(t.TempDir(), "d.img")
	if code, _, e := shell(t, "", "mkfs", "--size", "256M", img); code != 0 {
		t.Fatal(e)
	}
	in, lines := io.Pipe()
	results, out := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- Main([]string{"sh", "--json", img}, in, out, io.Discard)
		out.Close()
	}()
	answers := bufio.NewScanner(results)
	for _, c := range []struct{ line, want string }{
		{"snapshot / /a", `{"line":1,"verb":"snapshot"}`},
		{"snapshot / /b", `{"line":2,"verb":"snapshot"}`},
		{"snapshot / /a", `{"line":3,"verb":"snapshot","errno":"EEXIST",`}, // which ends the run
	} {
		answered := make(chan bool)
		go func() { answered <- answers.Scan() }()
		if _, err := io.WriteString(lines, c.line+"\n"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-answered:
		case <-time.After(time.Minute): // only when it hangs
			t.Fatalf("%q has no result", c.line)
		}
		if have := answers.Text(); !strings.HasPrefix(have, c.want) {
			t.Errorf("%q: have %s, want %s", c.line, have, c.want)
		}
	}
	lines.Close()
	if c := <-code; c != 1 {
		t.Errorf("exit code %d", c)
	}
}
