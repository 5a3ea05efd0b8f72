package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"time"
)

// Whatever reads the text of a submission with an algorithm that is not linear runs in a process of
// its own with limits: the rules with the type checker (check.go, typed.go), the canonical form
// (canon.go), the functions that are compared (alike.go), and the compiler. Thirty lines of types
// that double keep go/types busy for hours, and nothing stops it from inside the process.
//
//	limited      starts this program again, with an order in its environment
//	  init       of this package sees the order and obeys it, before main: every program that can
//	             grade is its own helper, tests as well
//	    order check, alike: reads a request from standard input, writes the answer to a file
//	    order exec: sets limits of the system's and becomes another program

// orderVar is the environment variable with the order.
const orderVar = "BTRLAB_LIMITED"

// reading has the limits of the reading of a submission: processor time and bytes of memory. An
// honest one takes 100 ms and 30 MiB.
var reading = struct {
	cpu  time.Duration
	heap uint64
}{5 * time.Second, 512 << 20}

// The limits of each process of a build. The largest package of this module takes 5 s and 1 GiB of
// address space.
const (
	buildCPU     = 60 * time.Second
	buildAddress = 4 << 30
	buildWritten = 256 << 20 // of each file
)

// request is what a limited process is asked.
type request struct {
	Root    string
	Files   []File
	Rules   Rules
	Exports map[string]string // see exports
	CPU     time.Duration
	Heap    uint64
}

// answer is what it says.
type answer struct {
	Checked *checkedText `json:",omitempty"`
	Alike   *Alike       `json:",omitempty"`
	// Wrong is the limit that the process has reached.
	Wrong string `json:",omitempty"`
}

// LimitError says that a submission could not be read within the limits, in one line.
type LimitError struct{ Why string }

func (e *LimitError) Error() string { return e.Why }

func init() {
	switch order := os.Getenv(orderVar); order {
	case "check", "alike":
		obey(order, os.Args[1])
		os.Exit(0)
	case "exec":
		become(os.Args[1:])
	}
}

// limited starts this program with an order in the place of main. It is killed with its children
// when ctx ends.
func limited(ctx context.Context, dir, order string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := command(ctx, dir, self, args...)
	c.Env = append(os.Environ(), orderVar+"="+order)
	return c, nil
}

// ask has the files read in a limited process. The error is a *LimitError if the files are too much
// for it, that of ctx, or the system's.
func ask(ctx context.Context, order string, q request) (*answer, error) {
	q.CPU, q.Heap = reading.cpu, reading.heap
	in, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "btrlab-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, order)
	c, err := limited(ctx, "", order, out)
	if err != nil {
		return nil, err
	}
	var last ending
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(in), &last, &last
	err = c.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err == nil:
		a := &answer{}
		if in, err = os.ReadFile(out); err == nil {
			err = json.Unmarshal(in, a)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", order, err)
		}
		if a.Wrong != "" {
			return nil, &LimitError{a.Wrong}
		}
		return a, nil
	case errors.As(err, &exit):
		return nil, &LimitError{lastWords(exit, last.bytes(), q.CPU)}
	}
	return nil, err
}

// lastWords says in a line why a limited process has ended.
func lastWords(exit *exec.ExitError, out []byte, cpu time.Duration) string {
	text := string(out)
	const file = "the files cannot be read: "
	switch {
	case strings.Contains(text, "stack overflow") || strings.Contains(text, "goroutine stack exceeds"):
		return file + "something in them is nested too deep"
	case strings.Contains(text, "out of memory") || strings.Contains(text, "cannot allocate memory"):
		return file + "that takes too much memory"
	case exit.ExitCode() < 0:
		return file + fmt.Sprintf("that takes more than %v of processor time", cpu)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if first == "" {
		first = exit.Error()
	}
	return file + first
}

// obey is the main function of a process that reads a submission: it writes the answer to file out.
func obey(order, out string) {
	in, err := io.ReadAll(os.Stdin)
	var q request
	if err == nil {
		err = json.Unmarshal(in, &q)
	}
	if err != nil {
		panic(err)
	}
	bind(q.CPU)
	debug.SetMaxStack(maxStack)
	say := make(chan answer, 2)
	go watchSelf(q.CPU, q.Heap, func(wrong string) { say <- answer{Wrong: wrong} })
	go func() {
		switch order {
		case "check":
			say <- answer{Checked: check(q)}
		case "alike":
			say <- answer{Alike: alikeOf(q)}
		}
	}()
	b, err := json.Marshal(<-say)
	if err == nil {
		err = os.WriteFile(out, b, 0o644)
	}
	if err != nil {
		panic(err)
	}
}

// watchSelf calls end once this process has taken more than its processor time or memory.
func watchSelf(cpu time.Duration, heap uint64, end func(wrong string)) {
	have := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	for range time.Tick(lookEvery) {
		metrics.Read(have)
		switch {
		case cpuTime() > cpu:
			end(fmt.Sprintf("the files cannot be read: that takes more than %v of processor time; is there a type or a constant that doubles?", cpu))
			return
		case have[0].Value.Uint64() > heap:
			end("the files cannot be read: that takes more than " + memory(heap) + "; is there a type or a constant that doubles?")
			return
		}
	}
}

// compilerEnds finds, in what the go tool says, that a process of it has reached a limit, in words;
// empty for none.
func compilerEnds(out string) string {
	const what = "the compiler was stopped: "
	switch {
	case strings.Contains(out, ": signal: killed"):
		return what + fmt.Sprintf("your files take it more than %v of processor time", buildCPU)
	case strings.Contains(out, "out of memory") && strings.Contains(out, "fatal error: "), strings.Contains(out, "cannot allocate memory"):
		return what + "your files take it too much memory"
	case strings.Contains(out, "file too large"):
		return what + fmt.Sprintf("your files make it write more than %d MiB", buildWritten>>20)
	case strings.Contains(out, "goroutine stack exceeds") || strings.Contains(out, "stack overflow"):
		return what + "something in your files is nested too deep"
	}
	return ""
}
