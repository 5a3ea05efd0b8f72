package gantt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"btrlab/internal/data/inode"
	_ "btrlab/internal/data/writeback" // its classes
	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
)

// TestTrace: what is in the window is there once, cut at its ends; slices of a track do not
// overlap; tracks have names, and what is beyond the bound is counted.
func TestTrace(t *testing.T) {
	idle := class(t, "flusher_idle")
	a, b := sched.NewTask("a"), sched.NewTask("b")
	r := NewTrace(time.Microsecond, 10*time.Microsecond)
	r.Ran(a, 0, 0, 500) // before the job
	r.Begin(1000)       // the window is 2000 to 12000
	r.Ran(a, 0, 1500, 2500)
	r.Ran(b, 0, 2400, 3000) // ahead of the clock by 100
	l := vtime.LockID{Class: inode.Class.ID, N: 3}
	r.Held(a, l, 2000, 4000)
	r.Waited(b, l, 3000, 4000)
	r.Held(nil, l, 4000, 20000)
	r.Waited(b, idle, 5000, 6000)
	r.Spun(b, 1, 7000, 8000)
	r.Ran(a, 1, 12000, 13000) // after the window
	r.End(11000)
	r.Ran(a, 2, 11200, 11800) // after the job
	var out bytes.Buffer
	if err := r.Write(&out, "title", "command"); err != nil {
		t.Fatal(err)
	}
	var got struct {
		TraceEvents []struct {
			Ph, Name string
			Pid, Tid int
			Ts, Dur  float64
			Args     map[string]any
		}
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	have := map[string]bool{}
	tracks := map[string]bool{}
	for _, e := range got.TraceEvents {
		switch {
		case e.Ph == "X":
			have[fmt.Sprintf("%d/%d %s %g+%g", e.Pid, e.Tid, e.Name, e.Ts, e.Dur)] = true
		case e.Name == "thread_name":
			tracks[fmt.Sprintf("%d/%d %s", e.Pid, e.Tid, e.Args["name"])] = true
		}
	}
	for _, want := range []string{"1/1 a 0+0.5", "1/1 b 0.5+0.5", "2/1 runs 0+0.5", "2/2 runs 0.4+0.6", "3/1 a 0+2", "3/1 readers 2+8", "2/2 waits for i_rwsem 3 1+1", "1/2 b spins 5+1"} {
		if !have[want] {
			t.Errorf("no slice %s in %v", want, have)
		}
		delete(have, want)
	}
	if len(have) > 0 || !tracks["2/1 a"] || !tracks["2/2 b"] || !tracks["3/1 i_rwsem 3"] {
		t.Errorf("slices that nobody made: %v; tracks %v", have, tracks)
	}
	r.events = make([]event, MaxEvents)
	if r.Held(b, l, 3000, 3500); r.Lost() != 1 {
		t.Errorf("%d lost", r.Lost())
	}
}

// class is the class with the name.
func class(t *testing.T, name string) vtime.LockID {
	t.Helper()
	for id := range sched.MaxClasses {
		if sched.ClassByID(sched.ClassID(id)).Name == name {
			return vtime.LockID{Class: sched.ClassID(id)}
		}
	}
	t.Fatalf("no class %s", name)
	return vtime.LockID{}
}
