package scenario

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"btrlab/internal/data/pagecache"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// TestRestoredIsFresh: after executions have written, truncated and committed, putting the heap
// back makes the open file system the same, object by object, as one that is opened anew. What
// restore skips is compared, too.
func TestRestoredIsFresh(t *testing.T) {
	for _, name := range []string{"truncate-race", "grow-writeback", "range-and-space"} {
		t.Run(name, func(t *testing.T) {
			s, err := Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			s = s.With(nil, true) // end with a sync
			devs, err := s.prepare()
			if err != nil {
				t.Fatal(err)
			}
			p := policy.MustParse("locked")
			used, fresh := s.open(devs, p), s.open(devs, p)
			r := explore.Run(explore.Config{Method: explore.Random, Schedules: 20, Seed: 1}, func(w *explore.World) {
				used.start(s, w, p, s.rule(p, false), false)
			})
			if r.Schedules != 20 {
				t.Fatalf("%d schedules ran, want 20: %+v", r.Schedules, r)
			}
			if diff(used, fresh) == nil {
				t.Error("no difference after an execution: the comparison sees nothing")
			}
			used.heap.restore()
			if d := diff(used, fresh); d != nil {
				t.Errorf("after restore:\n%s", strings.Join(d, "\n"))
			}
		})
	}
}

// TestRestoreNames: a rule for a field that is gone panics with its name.
func TestRestoreNames(t *testing.T) {
	for _, x := range []idle{{counter: "gone", bytes: "data"}, {counter: "index", bytes: "data"}, {counter: "refs", bytes: "gone"}} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, "pagecache.Page has no") {
					t.Errorf("%+v: have %q, want a panic with the name", x, got)
				}
			}()
			mustKnow(reflect.TypeFor[pagecache.Page](), x)
		}()
	}
}

// diff lists where two open file systems differ, at most ten places.
func diff(a, b *opened) []string {
	d := &differ{seen: map[[2]unsafe.Pointer]bool{}}
	d.walk("fs", reflect.ValueOf(a.fs), reflect.ValueOf(b.fs))
	d.walk("file", reflect.ValueOf(a.f), reflect.ValueOf(b.f))
	return d.found
}

type differ struct {
	seen  map[[2]unsafe.Pointer]bool // pairs of objects that are compared, or will be
	found []string
}

func (d *differ) say(path, format string, args ...any) {
	if len(d.found) < 10 {
		d.found = append(d.found, path+": "+fmt.Sprintf(format, args...))
	}
}

func (d *differ) object(path string, t reflect.Type, a, b unsafe.Pointer) {
	pair := [2]unsafe.Pointer{a, b}
	switch {
	case (a == nil) != (b == nil):
		d.say(path, "nil %v and %v", a == nil, b == nil)
	case a != nil && !skipped(t) && !d.seen[pair]:
		d.seen[pair] = true
		d.walk(path, reflect.NewAt(t, a).Elem(), reflect.NewAt(t, b).Elem())
	}
}

func (d *differ) walk(path string, a, b reflect.Value) {
	switch a.Kind() {
	case reflect.Pointer:
		d.object(path, a.Type().Elem(), a.UnsafePointer(), b.UnsafePointer())
	case reflect.Interface:
		switch {
		case a.IsNil() != b.IsNil() || !a.IsNil() && a.Elem().Type() != b.Elem().Type():
			d.say(path, "%v and %v", a, b)
		case !a.IsNil():
			d.walk(path, a.Elem(), b.Elem())
		}
	case reflect.Slice:
		if a.Len() != b.Len() || a.IsNil() != b.IsNil() {
			d.say(path, "%d and %d elements", a.Len(), b.Len())
			return
		}
		for i := range a.Len() {
			d.walk(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i))
		}
	case reflect.Array:
		for i := range a.Len() {
			d.walk(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i))
		}
	case reflect.Map:
		if a.Len() != b.Len() {
			d.say(path, "%d and %d keys", a.Len(), b.Len())
			return
		}
		for _, k := range a.MapKeys() {
			if e := b.MapIndex(k); !e.IsValid() {
				d.say(path, "key %v in one only", k)
			} else {
				d.walk(fmt.Sprintf("%s[%v]", path, k), a.MapIndex(k), e)
			}
		}
	case reflect.Struct:
		d.fields(path, a, b)
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		if a.IsNil() != b.IsNil() {
			d.say(path, "nil %v and %v", a.IsNil(), b.IsNil())
		}
	default:
		if !a.Equal(b) {
			d.say(path, "%v and %v", a, b)
		}
	}
}

func (d *differ) fields(path string, a, b reflect.Value) {
	t := a.Type()
	if to := pointee(t); to != nil {
		d.object(path, to, a.FieldByName("v").UnsafePointer(), b.FieldByName("v").UnsafePointer())
		return
	}
	if t == reflect.TypeFor[sched.Obj]() {
		return // a number of the run, no state
	}
	skip := "isoid" // of tidwall/btree: a number of the process
	if t == reflect.TypeFor[pagecache.Page]() && a.FieldByName("refs").FieldByName("v").IsZero() {
		skip = "data" // of a free page: it means nothing
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.Name != skip {
			d.walk(path+"."+f.Name, a.Field(i), b.Field(i))
		}
	}
}
