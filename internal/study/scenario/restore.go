package scenario

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"btrlab/internal/data/pagecache"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// heap is a copy of everything that can be reached from some pointers, taken once and put back
// before each execution: opening a file system takes a hundred times as long. An object stays at
// its address; what an execution made anew is not reached any more and goes to the garbage
// collector.
//
// Invariants:
//   - nobody runs on the objects while they are copied or put back;
//   - what a func value has captured is not changed by an execution (the engine's closures capture
//     the file system only);
//   - what is skipped does not change: lock classes, policies, tree blocks that are not dirty,
//     bytes of free pages.
type heap struct {
	seen   map[heapKey]bool
	shapes map[reflect.Type]*shape
	objs   []heapObj
	plain  []heapBytes
	maps   []heapMap
}

type heapKey struct {
	p unsafe.Pointer
	t reflect.Type
}

// heapObj is an object with pointers in it: it goes back by reflection, so that the garbage
// collector sees them, and only if its bytes, now, are not what they were.
type heapObj struct {
	live, saved reflect.Value
	now, was    []byte
}

// heapBytes is an object without pointers.
type heapBytes struct{ live, saved []byte }

type heapMap struct {
	live reflect.Value
	keys []reflect.Value
	vals []reflect.Value
}

// take copies what roots, which are pointers, reach.
func take(roots ...any) *heap {
	h := &heap{seen: map[heapKey]bool{}, shapes: map[reflect.Type]*shape{}}
	for _, r := range roots {
		h.walk(reflect.ValueOf(r))
	}
	h.seen, h.shapes = nil, nil
	h.dropInner()
	return h
}

// dropInner forgets the objects that lie in another one, which brings them back: a page of a slab,
// a lock of a struct.
func (h *heap) dropInner() {
	type span struct{ start, end uintptr }
	spans := make([]span, 0, len(h.objs)+len(h.plain))
	objSpan := func(o heapObj) span {
		p := o.live.Addr().Pointer()
		return span{p, p + o.live.Type().Size()}
	}
	bytesSpan := func(b heapBytes) span {
		p := uintptr(unsafe.Pointer(unsafe.SliceData(b.live)))
		return span{p, p + uintptr(len(b.live))}
	}
	for _, o := range h.objs {
		spans = append(spans, objSpan(o))
	}
	for _, b := range h.plain {
		spans = append(spans, bytesSpan(b))
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end)) })
	outer := map[span]bool{} // true until its object is met
	end := uintptr(0)
	for _, s := range spans {
		if s.end > end {
			outer[s], end = true, s.end
		}
	}
	inner := func(s span) bool {
		is := !outer[s]
		delete(outer, s) // of two types at one address the first stays
		return is
	}
	h.objs = slices.DeleteFunc(h.objs, func(o heapObj) bool { return inner(objSpan(o)) })
	h.plain = slices.DeleteFunc(h.plain, func(b heapBytes) bool { return inner(bytesSpan(b)) })
}

// restore puts everything back.
func (h *heap) restore() {
	for i := range h.plain {
		copy(h.plain[i].live, h.plain[i].saved)
	}
	for i := range h.objs {
		if o := &h.objs[i]; !bytes.Equal(o.now, o.was) {
			o.live.Set(o.saved)
		}
	}
	for i := range h.maps {
		h.maps[i].restore()
	}
}

func (m *heapMap) restore() {
	if m.live.Len() == len(m.keys) {
		same := true
		for i, k := range m.keys {
			if v := m.live.MapIndex(k); !v.IsValid() || !v.Comparable() || !v.Equal(m.vals[i]) {
				same = false
				break
			}
		}
		if same {
			return
		}
	}
	m.live.Clear()
	for i, k := range m.keys {
		m.live.SetMapIndex(k, m.vals[i])
	}
}

// constant are types whose values do not change, or are not the file system's; constantRooms are
// packages of such types.
var (
	constant      = []reflect.Type{reflect.TypeFor[lockdep.Class](), reflect.TypeFor[policy.Policy](), reflect.TypeFor[sched.Task](), reflect.TypeFor[time.Location]()}
	constantRooms = []string{"reflect", reflect.TypeFor[Scenario]().PkgPath(), reflect.TypeFor[explore.World]().PkgPath()}
)

func skipped(t reflect.Type) bool {
	return slices.Contains(constant, t) || slices.Contains(constantRooms, t.PkgPath())
}

// idle is a type whose bytes do not change, or mean nothing, while a counter of it is zero. The
// fields belong to other rooms.
type idle struct{ counter, bytes string }

var idles = map[reflect.Type]idle{
	// only a dirty block is changed
	reflect.TypeFor[ctree.Buffer](): {counter: "dirty", bytes: "Node"},
	// a page without references is free
	reflect.TypeFor[pagecache.Page](): {counter: "refs", bytes: "data"},
}

func init() {
	for t, x := range idles {
		mustKnow(t, x)
	}
	if p := reflect.TypeFor[atomic.Pointer[heap]](); p.NumField() == 0 || p.Field(0).Type != reflect.TypeFor[[0]*heap]() || !has(p, "v", reflect.UnsafePointer) {
		panic(fmt.Sprintf("scenario: restore: %v is not struct{_ [0]*T; v unsafe.Pointer}", p))
	}
}

// mustKnow panics unless t has the fields of x. A rule for a field that is gone would copy too much
// or too little, silently.
func mustKnow(t reflect.Type, x idle) {
	c, ok := t.FieldByName(x.counter)
	if !ok || !has(c.Type, "v", reflect.Uint32, reflect.Int32) {
		panic(fmt.Sprintf("scenario: restore: %v has no atomic counter %s", t, x.counter))
	}
	if _, ok := t.FieldByName(x.bytes); !ok {
		panic(fmt.Sprintf("scenario: restore: %v has no field %s", t, x.bytes))
	}
}

// has reports whether t is a struct with such a field.
func has(t reflect.Type, name string, kinds ...reflect.Kind) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	f, ok := t.FieldByName(name)
	return ok && slices.Contains(kinds, f.Type.Kind())
}

// object saves the object of type t at p, once, and what it reaches.
func (h *heap) object(p unsafe.Pointer, t reflect.Type) {
	if p == nil || t.Size() == 0 || h.seen[heapKey{p, t}] {
		return
	}
	s := h.shape(t)
	if s.skipped {
		return
	}
	h.seen[heapKey{p, t}] = true
	live := reflect.NewAt(t, p).Elem()
	if !s.pointers {
		b := unsafe.Slice((*byte)(p), t.Size())
		h.plain = append(h.plain, heapBytes{b, append([]byte(nil), b...)})
		return
	}
	saved := reflect.New(t)
	saved.Elem().Set(live)
	bytesAt := func(p unsafe.Pointer) []byte { return unsafe.Slice((*byte)(p), t.Size()) }
	h.objs = append(h.objs, heapObj{live, saved.Elem(), bytesAt(p), bytesAt(saved.UnsafePointer())})
	h.walk(live)
}

// walk follows the pointers in v.
func (h *heap) walk(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		h.object(v.UnsafePointer(), v.Type().Elem())
	case reflect.Interface:
		if !v.IsNil() {
			h.walk(v.Elem())
		}
	case reflect.Slice:
		if v.Cap() > 0 {
			h.object(v.UnsafePointer(), reflect.ArrayOf(v.Cap(), v.Type().Elem()))
		}
	case reflect.Array:
		if h.shape(v.Type()).pointers {
			for i := range v.Len() {
				h.walk(v.Index(i))
			}
		}
	case reflect.Struct:
		h.fields(v)
	case reflect.Map:
		if v.IsNil() {
			return
		}
		m := heapMap{live: v}
		if !v.CanInterface() { // a field that is not exported: take the value by another way
			if !v.CanAddr() {
				panic(fmt.Sprintf("scenario: a map %v that cannot be restored", v.Type()))
			}
			m.live = reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
		}
		for _, k := range m.live.MapKeys() {
			e := m.live.MapIndex(k)
			m.keys, m.vals = append(m.keys, k), append(m.vals, e)
			h.walk(k)
			h.walk(e)
		}
		// The map object itself: live is read anew at each restore from a variable that is restored
		// first.
		ref := reflect.New(v.Type()).Elem()
		ref.Set(m.live)
		m.live = ref
		h.maps = append(h.maps, m)
	}
}

func (h *heap) fields(v reflect.Value) {
	s := h.shape(v.Type())
	if s.pointee != nil { // an atomic.Pointer: its pointer has no type
		h.object(v.Field(s.fields[0]).UnsafePointer(), s.pointee)
		return
	}
	isIdle := s.counter != nil && v.FieldByIndex(s.counter).IsZero()
	for _, i := range s.fields {
		if !isIdle || i != s.bytes {
			h.walk(v.Field(i))
		}
	}
}

// shape caches heap's questions about a type; reflect takes a while to answer.
type shape struct {
	skipped  bool
	pointers bool
	pointee  reflect.Type // of an atomic.Pointer
	fields   []int        // those of a struct that have pointers
	counter  []int        // where the counter of an idle type is, or nil
	bytes    int          // the field that is not followed while the counter is zero
}

func (h *heap) shape(t reflect.Type) *shape {
	if s := h.shapes[t]; s != nil {
		return s
	}
	s := &shape{skipped: skipped(t), pointers: pointers(t), pointee: pointee(t)}
	h.shapes[t] = s
	if t.Kind() != reflect.Struct {
		return s
	}
	x, isIdle := idles[t]
	for i := range t.NumField() {
		f := t.Field(i)
		if pointers(f.Type) && (s.pointee == nil || f.Name == "v") {
			s.fields = append(s.fields, i)
		}
		if isIdle && f.Name == x.counter {
			v, _ := f.Type.FieldByName("v")
			s.counter = []int{i, v.Index[0]}
		}
		if isIdle && f.Name == x.bytes {
			s.bytes = i
		}
	}
	return s
}

// pointee is T of an atomic.Pointer[T], and nil for every other type.
func pointee(t reflect.Type) reflect.Type {
	if t.PkgPath() != "sync/atomic" || !strings.HasPrefix(t.Name(), "Pointer[") {
		return nil
	}
	return t.Field(0).Type.Elem().Elem()
}

// pointers reports whether a value of type t has pointers that matter to the garbage collector.
func pointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16,
		reflect.Uint32, reflect.Uint64, reflect.Uintptr, reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return false
	case reflect.Array:
		return t.Len() > 0 && pointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if pointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	}
	return true
}
