package progs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/interop"
	"btrlab/internal/testing/need"
)

// What an editor does with a lab's schedule: it asks dlv by the Debug Adapter Protocol to run the
// program that lab debug has built, which stops at each step, on the stack of the task that does
// it. The student's own file is in the stack, at the line that leads to the step, and the output
// says what the tasks do.
func TestDebugAdapter(t *testing.T) {
	need.All(t, "dlv")
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	interop.Must(t, err)
	t.Chdir(root)
	dir := filepath.Join(root, "labs", "05-range-lock", "instructor", "_mutants", "no-broadcast")
	interop.Btrlab(t, "lab", "debug", "5", "lock-identical=4:1", "--dir", dir, "--build")
	a := adapter(t)
	a.send("launch", map[string]any{"mode": "exec", "outputMode": "remote", "program": filepath.Join(root, "labs", "_grade", "debug"), "env": map[string]string{"BTRLAB_DEBUGGER": "1"}})
	a.until("initialized")
	a.send("configurationDone", nil)
	var lines []int
	for {
		e := a.until("stopped", "terminated")
		if e.Event == "terminated" {
			break
		}
		line := 0
		for _, f := range a.stack(e.Body.ThreadID) {
			if filepath.Dir(f.Source.Path) == dir {
				line = f.Line
				break
			}
		}
		lines = append(lines, line)
		a.send("continue", map[string]any{"threadId": e.Body.ThreadID})
	}
	// lock and unlock in Lock by both tasks, the wait of the second, and the first one's Unlock;
	// where the line is 0 the judge steps.
	if want := "[34 39 34 36 36 0 0 44 48]"; fmt.Sprint(lines) != want {
		t.Errorf("it stops at the lines %v of %s, want %s", lines, dir, want)
	}
	for _, want := range []string{"step 3 of 11", "waits for student_mutex #2: task 0", "orphaned wait"} {
		if !strings.Contains(a.output.String(), want) {
			t.Errorf("no %q in the output\n%s", want, &a.output)
		}
	}
}

// dap is a session with dlv.
type dap struct {
	t      *testing.T
	in     *bufio.Reader
	out    io.Writer
	asked  int
	output strings.Builder // of the program
}

// message is what dlv says, as far as it is read here.
type message struct {
	Type, Event, Command, Message string
	Success                       bool
	Body                          struct {
		ThreadID    int `json:"threadId"`
		Output      string
		StackFrames []frame `json:"stackFrames"`
	}
}

type frame struct {
	Line   int
	Source struct{ Path string }
}

// adapter starts dlv, which connects to the test.
func adapter(t *testing.T) *dap {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	interop.Must(t, err)
	defer l.Close()
	cmd := exec.Command("dlv", "dap", "--client-addr", l.Addr().String())
	cmd.Stderr = os.Stderr
	interop.Must(t, cmd.Start())
	c, err := l.Accept()
	interop.Must(t, err)
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), cmd.Wait()); err != nil {
			t.Errorf("dlv: %v", err)
		}
	})
	a := &dap{t: t, in: bufio.NewReader(c), out: c}
	a.ask("initialize", map[string]any{"adapterID": "go", "pathFormat": "path"})
	return a
}

// send sends a request.
func (a *dap) send(command string, args any) {
	a.t.Helper()
	a.asked++
	b, err := json.Marshal(map[string]any{"seq": a.asked, "type": "request", "command": command, "arguments": args})
	interop.Must(a.t, err)
	_, err = fmt.Fprintf(a.out, "Content-Length: %d\r\n\r\n%s", len(b), b)
	interop.Must(a.t, err)
}

// ask sends a request, and returns the answer, which is a success.
func (a *dap) ask(command string, args any) *message {
	a.t.Helper()
	a.send(command, args)
	for {
		m := a.read()
		if m.Type == "response" && m.Command == command {
			if !m.Success {
				a.t.Fatalf("%s: %s\n%s", command, m.Message, &a.output)
			}
			return m
		}
	}
}

// until reads on to one of the events.
func (a *dap) until(events ...string) *message {
	a.t.Helper()
	for {
		m := a.read()
		for _, e := range events {
			if m.Type == "event" && m.Event == e {
				return m
			}
		}
	}
}

func (a *dap) stack(thread int) []frame {
	a.t.Helper()
	return a.ask("stackTrace", map[string]any{"threadId": thread, "levels": 64}).Body.StackFrames
}

// read is the next message.
func (a *dap) read() *message {
	a.t.Helper()
	n := 0
	for {
		line, err := a.in.ReadString('\n')
		interop.Must(a.t, err)
		if line = strings.TrimSpace(line); line == "" {
			break
		}
		if v, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			_, err := fmt.Sscan(v, &n)
			interop.Must(a.t, err)
		}
	}
	b := make([]byte, n)
	_, err := io.ReadFull(a.in, b)
	interop.Must(a.t, err)
	m := &message{}
	interop.Must(a.t, json.Unmarshal(b, m))
	if m.Event == "output" {
		a.output.WriteString(m.Body.Output)
	}
	return m
}
