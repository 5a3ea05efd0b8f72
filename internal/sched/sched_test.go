package sched

import (
	"testing"
	"time"
)

// A child inherits what labels a task, has its own identity, and Join waits for its end.
func TestGoAndJoin(t *testing.T) {
	root := NewTask("root")
	root.Op, root.Policy = "write", "locked"
	v := 0
	c := root.Go("child", func(k *Task) {
		if k.Op != "write" || k.Policy != "locked" || k.ID == root.ID || k.Runtime() != nil {
			t.Errorf("child %+v", k)
		}
		v = 1
	})
	root.Join(c)
	if v != 1 {
		t.Fatal("Join came back before the child's end")
	}
}

// An Unpark that comes first is not lost.
func TestUnparkBeforePark(t *testing.T) {
	k := NewTask("k")
	k.Unpark()
	k.Park(0)
}

func TestNowaitBrackets(t *testing.T) {
	k := NewTask("k")
	k.BeginNowait()
	k.BeginNowait()
	k.EndNowait()
	if !k.Nowait() {
		t.Error("the outer bracket is lost")
	}
	k.Sleep(time.Nanosecond)
	k.EndNowait()
	k.Sleep(time.Nanosecond)
	if k.Nowait() || len(k.NowaitSleeps) != 1 {
		t.Errorf("nowait %v, sleeps %v", k.Nowait(), k.NowaitSleeps)
	}
	defer func() {
		if recover() == nil {
			t.Error("EndNowait without BeginNowait did not panic")
		}
	}()
	k.EndNowait()
}

func TestCheckedIsForNewTasks(t *testing.T) {
	a := NewTask("a")
	SetChecked(true)
	defer SetChecked(false)
	if b := NewTask("b"); a.Slow() || !b.Slow() {
		t.Errorf("slow: %v %v, want false true", a.Slow(), b.Slow())
	}
}
