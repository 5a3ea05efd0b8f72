package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// doubling are declarations of which each has the one before it twice.
func doubling(n int, first, each string) string {
	var b strings.Builder
	fmt.Fprintln(&b, first)
	for i := 1; i <= n; i++ {
		fmt.Fprintln(&b, strings.NewReplacer("NEW", fmt.Sprint("x", i), "OLD", fmt.Sprint("x", i-1)).Replace(each))
	}
	return b.String()
}

// hugeSources are submissions that keep a parser, a type checker or a compiler busy.
var hugeSources = []struct{ name, text string }{
	{"types that double", doubling(40, "type x0 struct{ a, b uint64 }", "type NEW struct{ a, b OLD }")},
	{"interfaces that double", doubling(40, "type x0 interface{ m() }", "type NEW interface{ OLD; interface{ OLD } }")},
	{"strings that double", doubling(40, "const x0 = \"abcdefgh\"", "const NEW = OLD + OLD") + "const n = len(x40)\n"},
	{"parameters that double", doubling(40, "type x0[T any] struct{ a T }", "type NEW[T any] struct{ a OLD[OLD[T]] }") + "var v x40[int]\n"},
	{"parentheses", "func f() int { return " + strings.Repeat("(", 200_000) + "1" + strings.Repeat(")", 200_000) + " }"},
	{"blocks", "func f() " + strings.Repeat("{", 200_000) + strings.Repeat("}", 200_000)},
	{"signs", "func f(x int) int { return " + strings.Repeat("- ", 400_000) + "x }"},
	{"pointers", "type t " + strings.Repeat("*", 900_000) + "int"},
	{"slices", "type t " + strings.Repeat("[]", 400_000) + "int"},
	{"functions", "type t " + strings.Repeat("func() ", 140_000)},
	{"a sum", "func f(x int) int { return x" + strings.Repeat("+x", 400_000) + " }"},
	{"mistakes", strings.Repeat("var _ = y\n", 90_000)},
	{"a long name", "var " + strings.Repeat("a", 900_000) + " = b"},
}

// TestLimits: a submission that is too much for the parser or the type checker ends with a line
// that says so, and whatever the check says is short. The limits are the same kind as a grade's,
// and smaller.
func TestLimits(t *testing.T) {
	defer func(old time.Duration) { reading.cpu = old }(reading.cpu)
	reading.cpu = 300 * time.Millisecond
	r, err := Root(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range hugeSources {
		c, err := Check(t.Context(), r, []File{{"x.go", []byte("package p\n" + x.text)}}, Rules{Entry: "f", Want: "f"})
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		if text := strings.Join(c.Bad, "\n"); len(c.Bad) > 22 || len(text) > 32<<10 {
			t.Errorf("%s: %d lines, %d bytes", x.name, len(c.Bad), len(text))
		}
		t.Logf("%s: %.200q %.100q", x.name, c.Bad, c.untyped)
	}
	c, err := Check(t.Context(), r, []File{{"x.go", []byte("package p\n" + hugeSources[0].text)}}, Rules{Entry: "f", Want: "f"})
	if want := "the files cannot be read: that takes more than 300ms of processor time"; err != nil || len(c.Bad) != 1 || !strings.HasPrefix(c.Bad[0], want) {
		t.Errorf("have %q %v want %q", c.Bad, err, want)
	}
}

// TestCheckEnds: the check of a submission ends when its context does, whatever it is at: without
// that it goes on for ever here.
func TestCheckEnds(t *testing.T) {
	defer func(old time.Duration) { reading.cpu = old }(reading.cpu)
	reading.cpu = 1000 * time.Hour
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	r, err := Root(".")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	go func() {
		_, err := Check(ctx, r, []File{{"x.go", []byte("package p\n" + hugeSources[0].text)}}, Rules{Entry: "f", Want: "f"})
		ended <- err
	}()
	for { // until its process is about to begin
		if l, err := os.ReadDir(tmp); err != nil || len(l) > 0 {
			break
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("have %v", err)
	}
}

// TestBuildLimits: a process of the go tool that grades has the limits of a build, and what it says
// when it reaches one is a line without the words of the tool.
func TestBuildLimits(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "js" {
		t.Skip("the system bounds no process")
	}
	c, err := goTool(t.Context(), "", "version")
	if err != nil {
		t.Fatal(err)
	}
	// the go tool is not asked: its place takes a shell that says its limits
	c.Args = append(c.Args[:4], "/bin/sh", "-c", "ulimit -t; ulimit -v; ulimit -f; env")
	out, err := c.CombinedOutput()
	if want := fmt.Sprintf("%d\n%d\n%d\n", int(buildCPU/time.Second), buildAddress>>10, buildWritten>>9); err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("have %.200q %v want %q", out, err, want)
	}
	if strings.Contains(string(out), orderVar) {
		t.Error("the order goes on to the program")
	}
	for out, want := range map[string]string{
		"# x/student\n/go/compile: signal: killed\n":                            "more than 1m0s of processor time",
		"# x/student\nfatal error: runtime: out of memory\n\ngoroutine 1\n":     "too much memory",
		"# x/student\n./a.go: write $WORK/b001/_pkg_.a: file too large":         "more than 256 MiB",
		"# x/student\nruntime: goroutine stack exceeds 1000000000-byte limit\n": "nested too deep",
		"# x/student\nlabs/_grade/5/student/a.go:3:1: undefined: x\n":           "",
	} {
		if have := compilerEnds(out); (have == "") != (want == "") || !strings.HasSuffix(have, want) {
			t.Errorf("%q: have %q want %q", out, have, want)
		}
	}
}

// TestHandedMany: a folder of many entries is not listed, and files that are small each are not
// read if they are much together.
func TestHandedMany(t *testing.T) {
	dir := t.TempDir()
	var h *HandedError
	for i := range MaxEntries + 1 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Sources(dir); !errors.As(err, &h) || !strings.HasSuffix(h.Why, "has more than 4096 entries, want at most that") {
		t.Errorf("have %v", err)
	}
	var paths []string
	for i := range 3 {
		p := filepath.Join(dir, fmt.Sprint(i))
		paths = append(paths, p)
		if err := os.WriteFile(p, make([]byte, maxHanded/2), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if l, err := ReadAll(paths[:2]); err != nil || len(l) != 2 {
		t.Errorf("have %d, %v", len(l), err)
	}
	if _, err := ReadAll(paths); !errors.As(err, &h) || !strings.HasSuffix(h.Why, "more than 1024 KiB, want at most that") {
		t.Errorf("have %v", err)
	}
}

// Without a go tool the one line says what to get.
func TestNoGo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := exported(t.Context(), t.TempDir(), []string{"nothing"})
	if err == nil || !strings.Contains(err.Error(), "get Go 1.21 or newer") {
		t.Errorf("without go in PATH: %v", err)
	}
}

// What was left by a program that was killed is deleted once it is old.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	past := time.Now().Add(-2 * old)
	for _, name := range []string{"05-1", "05-2", "score-05.json"} {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if name != "05-2" {
			if err := os.Chtimes(path, past, past); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept := filepath.Join(dir, "score-05.json")
	if err := errors.Join(os.Remove(kept), os.WriteFile(kept, nil, 0o644), os.Chtimes(kept, past, past)); err != nil {
		t.Fatal(err)
	}
	sweep(dir)
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 2 || filepath.Base(left[0]) != "05-2" {
		t.Errorf("left %v, %v, want the new folder and the file", left, err)
	}
}
