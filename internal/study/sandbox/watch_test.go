package sandbox

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestWatchdog: an execution that takes too much is reported with the student's line; one that goes
// on taking steps is not.
func TestWatchdog(t *testing.T) {
	spin := func(until func() bool) {
		for !until() {
			_ = cpuTime()
		}
	}
	var d watchdog
	wrong := make(chan string, 1)
	d.begin("a workload", 200*time.Millisecond)
	d.start(false, 0, MaxHeap, func(w string, _ bool) { wrong <- w })
	from, last := cpuTime(), cpuTime()
	spin(func() bool { // steps all the time, for longer than the limit
		if now := cpuTime(); now-last > time.Millisecond {
			d.again()
			last = now
		}
		return cpuTime()-from > 600*time.Millisecond
	})
	select {
	case w := <-wrong:
		t.Fatalf("what goes on is reported: %s", w)
	default:
	}
	var got string
	spin(func() bool {
		select {
		case got = <-wrong:
			return true
		default:
			return false
		}
	})
	if want := "a workload took 200ms of processor time and did not end"; !strings.Contains(got, want) {
		t.Errorf("have %q want %q", got, want)
	}
}

// TestWatchdogMemory: the limit of memory is the one that was asked for.
func TestWatchdogMemory(t *testing.T) {
	const most = 96 << 20
	var d watchdog
	wrong := make(chan string, 1)
	d.begin("a workload", time.Hour)
	d.start(false, 0, most, func(w string, _ bool) { wrong <- w })
	var kept [][]byte
	for from := cpuTime(); cpuTime() < from+10*time.Second; {
		if len(kept) < 12 { // 192 MiB
			kept = append(kept, make([]byte, 16<<20))
		}
		select {
		case w := <-wrong:
			if !strings.Contains(w, "a workload took more than 96 MiB of memory and did not end") {
				t.Error(w)
			}
			return
		default:
		}
	}
	t.Errorf("%d MiB are not too much", len(kept)*16)
}

// TestWatchdogSpent: what goes on and on within its rows is ended by the processor time of the
// submission, and that is said.
func TestWatchdogSpent(t *testing.T) {
	var d watchdog
	d.begin("a workload", time.Hour)
	spent := make(chan bool, 1)
	from := cpuTime()
	d.start(false, from+200*time.Millisecond, MaxHeap, func(_ string, is bool) { spent <- is })
	for cpuTime() < from+10*time.Second {
		d.again()
		select {
		case is := <-spent:
			if !is {
				t.Error("the limit that was reached is said to be another one")
			}
			return
		default:
		}
	}
	t.Error("a submission goes on beyond its processor time")
}

// TestStudentLine: of a stack's lines those in the student's folder, of goroutines the one that
// runs.
func TestStudentLine(t *testing.T) {
	const all = `goroutine 7 [running]:
btrlab/internal/study/sandbox.stacks()
	/src/internal/study/sandbox/watch.go:90 +0x3c

goroutine 20 [coroutine]:
btrlab/labs/_grade/05-1/student.(*RangeLock).Lock(...)
	/src/labs/_grade/05-1/student/rangelock.go:37 +0x44

goroutine 21 [runnable]:
slices.ContainsFunc[...]()
	/usr/lib/go/src/slices/slices.go:112 +0x10
btrlab/labs/_grade/05-1/student.(*RangeLock).free(...)
	/src/labs/_grade/05-1/student/rangelock.go:28 +0x54
btrlab/labs/_grade/05-1/student.(*RangeLock).Lock(...)
	/src/labs/_grade/05-1/student/rangelock.go:35 +0x54
`
	if got, want := runningLine([]byte(all)), "rangelock.go:28, called in rangelock.go:35"; got != want {
		t.Errorf("have %q want %q", got, want)
	}
	stack := "runtime: goroutine stack exceeds 67108864-byte limit\n" + all
	if got, want := crash(errors.New("exit status 2"), []byte(stack)), "rangelock.go:37: calls itself without end"; len(got) != 1 || got[0] != want {
		t.Errorf("have %q want %q", got, want)
	}
	if got := crash(errors.New("exit status 2"), []byte("no stack")); len(got) != 2 || got[0] != "exit status 2" {
		t.Errorf("have %q", got)
	}
}

// TestBuildErrors: the compiler speaks of the student's file; what it says of the grader's own is
// about the function that is called.
func TestBuildErrors(t *testing.T) {
	const out = "# btrlab/labs/_grade/04-7/student\nlabs/_grade/04-7/student/setsize.go:9:2: undefined: x\nlabs/_grade/04-7/main.go:13:63: cannot use student.Steps (value)\n"
	got := (&Code{Rules: Rules{Want: "func Steps() []policy.SetsizeStep and func Answers() map[string]string"}}).buildErrors(out, "labs/_grade/04-7/")
	want := []string{"setsize.go:9:2: undefined: x", "want func Steps() []policy.SetsizeStep and func Answers() map[string]string: cannot use Steps (value)"}
	if !slices.Equal(got, want) {
		t.Errorf("have %q want %q", got, want)
	}
}

// A program that the system ended is said to be, and one that only prints so is not.
func TestKilled(t *testing.T) {
	for script, want := range map[string]string{
		"kill -9 $$":                  "the system killed the program: has it run out of memory?",
		"echo signal: killed; exit 2": "exit status 2",
		"kill -15 $$":                 "signal: terminated",
	} {
		out, err := exec.Command("sh", "-c", script).CombinedOutput()
		if have := crash(err, out); have[0] != want {
			t.Errorf("%s: have %q want %q", script, have[0], want)
		}
	}
}
