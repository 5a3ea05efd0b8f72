package lockdep

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

var (
	outer = NewTestClass("test_outer", "i_rwsem")
	inner = NewTestClass("test_inner", "page")
	same  = NewTestClass("test_same", "page")
	wait  = NewTestClass("test_wait", "ordered_extent")
)

// step is one thing a task does; the last step of a sequence must panic with want, if want is
// given.
type step struct {
	what string // lock, try, wait, unlock
	c    *Class
	sub  uint64
	obj  string
}

// An order that could deadlock is reported at the first acquire that breaks it, though no second
// task is there to complete the deadlock.
func TestOrder(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steps []step
		want  string
	}{
		{"outer then inner", []step{{"lock", outer, 0, "a"}, {"lock", inner, 0, "b"}}, ""},
		{"inner then outer", []step{{"lock", inner, 0, "b"}, {"lock", outer, 0, "a"}}, "acquires test_outer (rank 30, sub 0) while it holds test_inner (rank 70, sub 0)"},
		{"ascending", []step{{"lock", inner, 3, "b"}, {"lock", inner, 4, "c"}}, ""},
		{"descending", []step{{"lock", inner, 4, "c"}, {"lock", inner, 3, "b"}}, "sub 3) while it holds test_inner (rank 70, sub 4)"},
		{"equal", []step{{"lock", inner, 4, "c"}, {"lock", inner, 4, "b"}}, "while it holds"},
		{"two classes of a rank", []step{{"lock", inner, 4, "c"}, {"lock", same, 3, "b"}}, "while it holds"},
		{"twice", []step{{"lock", inner, 4, "c"}, {"lock", inner, 5, "c"}}, "while it holds"},
		{"try is not checked", []step{{"lock", inner, 0, "b"}, {"try", outer, 0, "a"}}, ""},
		{"but binds what follows", []step{{"try", inner, 7, "b"}, {"lock", inner, 5, "a"}}, "while it holds"},
		{"under an outer lock that a try got", []step{{"lock", inner, 0, "b"}, {"try", outer, 0, "a"}, {"lock", wait, 0, "c"}}, "acquires test_wait (rank 60, sub 0) while it holds test_inner"},
		{"unlock out of order", []step{{"lock", outer, 0, "a"}, {"lock", inner, 0, "b"}, {"unlock", outer, 0, "a"}, {"unlock", inner, 0, "b"}, {"lock", outer, 0, "a"}}, ""},
		{"wait under an outer lock", []step{{"lock", outer, 0, "a"}, {"wait", wait, 0, ""}}, ""},
		{"wait under an inner lock", []step{{"lock", inner, 0, "b"}, {"wait", wait, 0, ""}}, "waits for test_wait (rank 60, sub 0) while it holds test_inner"},
		{"release of what is not held", []step{{"unlock", inner, 0, "b"}}, "releases test_inner that it does not hold"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := sched.NewTask("t")
			at := 0
			defer func() {
				r := recover()
				if tc.want == "" && r != nil || tc.want != "" && !strings.Contains(fmt.Sprint(r), tc.want) || at != len(tc.steps)-1 {
					t.Fatalf("step %d of %d: panic %v, want %q", at, len(tc.steps), r, tc.want)
				}
			}()
			for i, s := range tc.steps {
				at = i
				switch s.what {
				case "unlock":
					Release(k, s.c, s.obj)
				case "wait":
					MightWait(k, s.c)
				case "try":
					Acquire(k, s.c, s.sub, s.obj, Write|Try)
				default:
					Acquire(k, s.c, s.sub, s.obj, Write)
				}
			}
		})
	}
}

func TestHoldsAndHandOver(t *testing.T) {
	a, b := sched.NewTask("a"), sched.NewTask("b")
	Acquire(a, inner, 0, "x", Read)
	if !Holds(a, "x", Read) || Holds(a, "x", Write) || Holds(b, "x", Read) {
		t.Fatal("a read lock must count as held for reading, by its task only")
	}
	Release(a, inner, "x")
	AssertNone(a)
	Acquire(b, inner, 0, "x", Write|Try) // as a try: b did not wait for it
	defer func() {
		if r := fmt.Sprint(recover()); !strings.Contains(r, "returns holding test_inner") {
			t.Fatalf("AssertNone: %v", r)
		}
	}()
	AssertNone(b)
}

// A lock that is not validated is held like another; only the order after it is not checked, until
// it is back in.
func TestNovalidate(t *testing.T) {
	k := sched.NewTask("a")
	Acquire(k, inner, 0, "x", Write)
	Novalidate(k, inner, "x", true)
	check(k, outer, 0, "y", "acquires")
	if !Holds(k, "x", Write) {
		t.Fatal("it must count as held")
	}
	Acquire(k, inner, 1, "z", Write|Try)
	func() {
		defer func() {
			if r := fmt.Sprint(recover()); !strings.Contains(r, "while it holds test_inner") {
				t.Errorf("what is held beside it is checked: %v", r)
			}
		}()
		check(k, outer, 0, "y", "acquires")
	}()
	Release(k, inner, "z")
	Novalidate(k, inner, "x", false)
	defer func() {
		if r := fmt.Sprint(recover()); !strings.Contains(r, "acquires test_outer") {
			t.Fatalf("the check is back: %v", r)
		}
	}()
	check(k, outer, 0, "y", "acquires")
}

func TestClasses(t *testing.T) {
	all := Classes()
	for i, c := range all {
		if int(c.ID) != i || ByID(c.ID) != c {
			t.Fatalf("class %d is %+v", i, c)
		}
	}
	if all[0] != Unclassed {
		t.Fatalf("class 0 is %s", all[0].Name)
	}
}

// A release takes its own lock off the list, in whatever order.
func TestReleaseOutOfOrder(t *testing.T) {
	k := sched.NewTask("t")
	Acquire(k, outer, 0, "a", Write)
	Acquire(k, inner, 1, "b", Write)
	Acquire(k, inner, 2, "c", Read)
	Release(k, inner, "b")
	if h := k.HeldLocks; len(h) != 2 || h[0].Obj != "a" || h[1].Obj != "c" || !h[1].Read || h[1].Sub != 2 {
		t.Errorf("held %+v", h)
	}
}

// Where the last search ended is where the next one begins, and no more than that.
func TestHoldsInAnyOrder(t *testing.T) {
	k := sched.NewTask("t")
	const n = 6
	for i := range uint64(n) {
		Acquire(k, inner, i, i, Write)
	}
	for at := range uint64(n) {
		for next := range uint64(n + 2) {
			if !Holds(k, at, Write) || Holds(k, next, Write) != (next < n) {
				t.Fatalf("after a look at %d: %d is held: %v", at, next, next >= n)
			}
		}
	}
	for i := range uint64(n) { // each is gone, wherever the search of the last one ended
		o := i * 5 % (n + 1) // 0 5 3 1 6 4: 6 is none
		if o == n {
			o = 2
		}
		Release(k, inner, o)
		if Holds(k, o, Read) {
			t.Fatalf("%d is held after its release", o)
		}
	}
	AssertNone(k)
}
