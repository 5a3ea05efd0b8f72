package sandbox

import (
	"bytes"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"time"
)

// The limits of student code. They are processor time and bytes, so that a loaded machine fails
// nobody: an execution takes milliseconds and the whole grader 200 MiB.
const (
	cpuOfExecution = 10 * time.Second
	cpuOfResumed   = 3 * time.Second // once an execution was stopped
	cpuOfSteps     = 2 * time.Second
	MaxHeap        = 1 << 30 // bytes, where Options.Memory does not say otherwise
	maxAddress     = 8 << 30 // of the process, where the system bounds it
	maxWritten     = 64 << 20
	maxStack       = 64 << 20
	lookEvery      = 50 * time.Millisecond
)

// watchdog ends a grading program whose student code does not come to an end, and says in which
// line.
type watchdog struct {
	begun atomic.Uint64 // executions and calls so far
	limit atomic.Int64  // nanoseconds of processor time for each
	what  atomic.Pointer[string]
}

// dog watches this process once start was called; before that it only counts.
var dog watchdog

// Execute says that an execution of what begins now; the watchdog gives it its time.
func Execute(what string) { dog.begin(what, cpuOfExecution) }

// Call says that a call of the student's function begins now.
func Call(what string) { dog.begin(what, cpuOfSteps) }

// Again says that what began last begins anew.
func Again() { dog.again() }

// begin says that what begins now, and how much processor time it may take.
func (d *watchdog) begin(what string, limit time.Duration) {
	d.what.Store(&what)
	d.limit.Store(int64(limit))
	d.begun.Add(1)
}

// again says that what began last begins anew.
func (d *watchdog) again() { d.begun.Add(1) }

// start watches from now on; end is called once, on a goroutine of its own, with what is wrong, and
// with spent set if that is the processor time of the submission: all is what the process has of
// it, 0 is no limit. heap is what it may have of memory, in bytes. With resumed set, code was
// stopped before, and no execution gets more than cpuOfResumed.
func (d *watchdog) start(resumed bool, all time.Duration, heap uint64, end func(wrong string, spent bool)) {
	debug.SetMaxStack(maxStack)
	go func() {
		seen, since := d.begun.Load(), cpuTime()
		have := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for range time.Tick(lookEvery) {
			metrics.Read(have)
			n, now, limit := d.begun.Load(), cpuTime(), time.Duration(d.limit.Load())
			if resumed {
				limit = min(limit, cpuOfResumed)
			}
			switch {
			case all > 0 && now > all:
				end(d.at(), true)
				return
			case have[0].Value.Uint64() > heap:
				end(d.wrong("more than "+memory(heap), "is there a loop that appends without end?"), false)
				return
			case n != seen || limit == 0:
				seen, since = n, now
			case now-since > limit:
				end(d.wrong(fmt.Sprintf("%v of processor time", limit), "is there a loop that does not end and does not wait?"), false)
				return
			}
		}
	}()
}

// memory is bytes in words, in GiB where it is a number of these.
func memory(bytes uint64) string {
	if bytes%(1<<30) == 0 {
		return fmt.Sprintf("%d GiB of memory", bytes>>30)
	}
	return fmt.Sprintf("%d MiB of memory", bytes>>20)
}

// at is the line of the student's that runs, with a colon; empty for none.
func (d *watchdog) at() string {
	if line := runningLine(stacks()); line != "" {
		return line + ": "
	}
	return ""
}

func (d *watchdog) wrong(took, hint string) string {
	what := "the student's code"
	if p := d.what.Load(); p != nil {
		what = *p
	}
	return fmt.Sprintf("%s%s took %s and did not end: %s", d.at(), what, took, hint)
}

// stacks are those of all goroutines, the caller's first.
func stacks() []byte {
	for n := 1 << 20; ; n *= 2 {
		buf := make([]byte, n)
		if k := runtime.Stack(buf, true); k < n {
			return buf[:k]
		}
	}
}

var (
	// studentFile is a line of a stack that lies in the student's folder.
	studentFile = regexp.MustCompile(`(?m)^\t\S*/labs/_grade/[^/]+/student/([^/\s]+\.go:\d+)`)
	running     = regexp.MustCompile(`^goroutine \d+ [^\n]*\[(?:running|runnable)`)
)

// StudentLine is the innermost line of the student's in a stack, as file:line, and the one that
// called it; empty for none.
func StudentLine(stack []byte) string {
	var l []string
	for _, m := range studentFile.FindAllSubmatch(stack, 2) {
		l = append(l, string(m[1]))
	}
	return strings.Join(l, ", called in ")
}

// runningLine is StudentLine of the goroutine that runs. Goroutines that wait for their turn also
// stand in student code.
func runningLine(all []byte) string {
	l := bytes.Split(all, []byte("\n\n"))
	for _, s := range l[1:] {
		if line := StudentLine(s); line != "" && running.Match(s) {
			return line
		}
	}
	return ""
}
