package sched

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"
	"unsafe"
)

// Reset forgets the last life of a task: every field but those of the runtime. It names the fields
// it clears, so that one added later would be left out without this test, which sets every field
// and says so where it cannot.
func TestReset(t *testing.T) {
	runtimes := []string{"ID", "Slot", "Mark", "rt", "st", "sim", "graph", "slow", "checked", "park", "done"}
	k := &Task{ID: 1, Slot: 2, slow: true, checked: true}
	k.Waited(5, "class", 0)
	used := reflect.ValueOf(k).Elem()
	for i := range used.NumField() {
		f := used.Field(i)
		f = reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
		switch f.Kind() {
		case reflect.String:
			f.SetString("used")
		case reflect.Int, reflect.Int32:
			f.SetInt(3)
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		}
	}
	k.tracer = func(*Task, TraceEvent) {}
	k.poll.Store(new(poll))
	k.Journal, k.Dirty.Pages, k.Next.ID, k.end.Run = 1, 1, 1, 1
	for i := range used.NumField() {
		if name := used.Type().Field(i).Name; !slices.Contains(runtimes, name) && used.Field(i).IsZero() {
			t.Errorf("%s is not set by this test", name)
		}
	}
	k.audit = &audit{"step", []NowaitSleep{{Step: "step", Count: 1}}}
	k.Reset("new")
	if k.Step() != "" || len(k.NowaitSleeps()) != 0 {
		t.Errorf("step %q, sleeps %v", k.Step(), k.NowaitSleeps())
	}
	k.audit = nil // it is kept for the next life's NOWAIT requests
	if k.Name != "new" || k.ID != 1 {
		t.Errorf("name %q, ID %d", k.Name, k.ID)
	}
	k.Name = ""
	for i := range used.NumField() {
		name, f := used.Type().Field(i).Name, used.Field(i)
		if !slices.Contains(runtimes, name) && !f.IsZero() && (f.Kind() != reflect.Slice || f.Len() != 0) {
			t.Errorf("%s is %v after Reset", name, f)
		}
	}
}

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
	if k.Nowait() || len(k.NowaitSleeps()) != 1 {
		t.Errorf("nowait %v, sleeps %v", k.Nowait(), k.NowaitSleeps())
	}
	k.At("nothing") // no NOWAIT request
	k.BeginNowait()
	for _, s := range []string{"", "reserve", "page", "reserve"} {
		k.At(s)
		k.Sleep(time.Nanosecond)
	}
	k.EndNowait()
	text := ""
	for _, s := range k.NowaitSleeps() {
		text += fmt.Sprintf("%d %s; ", s.Count, s.String())
	}
	if want := "2 a plain sleep; 2 a plain sleep in reserve; 1 a plain sleep in page; "; text != want || k.Step() != "" {
		t.Errorf("have %q want %q, step %q", text, want, k.Step())
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

// A class above 63 must not share a bit with another, and All finds each class once.
func TestClassSet(t *testing.T) {
	var s ClassSet
	want := []ClassID{0, 1, 63, 64, 127, 128, 200, 255}
	for _, c := range want {
		s.Add(c)
	}
	if got := slices.Collect(s.All); !slices.Equal(got, want) {
		t.Errorf("All gives %v, want %v", got, want)
	}
	for c := range MaxClasses {
		if s.Has(ClassID(c)) != slices.Contains(want, ClassID(c)) || !AllClasses.Has(ClassID(c)) {
			t.Errorf("class %d: Has is %v, in AllClasses %v", c, s.Has(ClassID(c)), AllClasses.Has(ClassID(c)))
		}
	}
}

// A task's tracer sees what its children do, and a task that is used again has none.
func TestTracer(t *testing.T) {
	root := NewTask("root")
	var seen []string
	root.SetTracer(func(k *Task, e TraceEvent) { seen = append(seen, k.Name+" "+e.Name) })
	root.Join(root.Go("child", func(k *Task) {
		if k.Tracing() {
			k.Trace(TraceEvent{Name: "step"})
		}
	}))
	if want := []string{"child step"}; !slices.Equal(seen, want) {
		t.Errorf("seen %q, want %q", seen, want)
	}
	if root.Reset("new"); root.Tracing() {
		t.Error("a tracer after Reset")
	}
}

// A request costs a Task, so it stays small: what depends on the number of classes is in none.
func TestTaskSize(t *testing.T) {
	if n := unsafe.Sizeof(Task{}); n > 384 {
		t.Errorf("a Task has %d bytes, want at most 384", n)
	}
}

// A class that a task waited for before costs no allocation when it waits for it again.
func TestWaits(t *testing.T) {
	k := NewTask("k")
	for _, c := range []ClassID{200, 3, 200} {
		k.Waited(c, "class", k.Now()-10)
	}
	if a, b := k.Waits.Of(200), k.Waits.Of(3); len(k.Waits) != 2 || a.Count != 2 || a.Nanos < 20 || b.Count != 1 {
		t.Errorf("waits %+v", k.Waits)
	}
	if n := k.Waits.Of(4); n != (WaitStat{}) {
		t.Errorf("class 4 was never waited for, has %+v", n)
	}
	if n := testing.AllocsPerRun(100, func() { k.Waited(3, "class", 0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
