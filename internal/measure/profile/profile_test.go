package profile

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	rtpprof "runtime/pprof"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/trace"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

var classA = lockdep.NewTestClass("test_a", "i_rwsem")

//go:noinline
func waiterUnderTest(t *sched.Task, m *lock.Mutex) {
	m.Lock(t)
	m.Unlock(t)
}

// waits says that a goroutine with the function on its stack waits for a mutex.
func waits(fn string) bool {
	buf := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if head, stack, _ := strings.Cut(g, "\n"); strings.Contains(head, " [sync.Mutex.Lock") && strings.Contains(stack, fn) {
			return true
		}
	}
	return false
}

// contend makes one task wait once for a mutex of classA.
func contend(t *sched.Task) {
	var m lock.Mutex
	m.Init(classA)
	m.Lock(t)
	t.Op, t.Policy = "write", "locked"
	c := t.Go("waiter", func(c *sched.Task) { waiterUnderTest(c, &m) })
	for !waits(".waiterUnderTest(") { // a waiter that found the lock free would record nothing
		runtime.Gosched()
	}
	m.Unlock(t)
	t.Join(c)
}

// A wait is in the profile once, with its labels, and the function that waited is the leaf: not the
// lock's insides.
func TestLockProfile(t *testing.T) {
	l := NewLocks()
	was := trace.SetSink(l)
	contend(sched.NewTask("main"))
	trace.SetSink(was)
	var b bytes.Buffer
	if err := l.WriteLocks(&b); err != nil {
		t.Fatal(err)
	}
	p, err := profile.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	if len(p.Sample) != 1 {
		t.Fatalf("%d samples", len(p.Sample))
	}
	s := p.Sample[0]
	if s.Value[0] != 1 || s.Value[1] <= 0 {
		t.Errorf("values %v", s.Value)
	}
	if m := p.Mapping; len(m) != 1 || m[0].File == "" || !m[0].HasFunctions || s.Location[0].Mapping != m[0] {
		t.Errorf("mappings %+v: go tool pprof does not know what the program is", m)
	}
	for k, v := range map[string]string{"lock": "test_a", "op": "write", "policy": "locked"} {
		if got := s.Label[k]; len(got) != 1 || got[0] != v {
			t.Errorf("label %s is %q, want %q", k, got, v)
		}
	}
	if fn := s.Location[0].Line[0].Function.Name; !strings.HasSuffix(fn, ".waiterUnderTest") {
		t.Errorf("the leaf is %s, want waiterUnderTest", fn)
	}
	if p.SampleType[0].Type != "contentions" || p.SampleType[0].Unit != "count" || p.SampleType[1].Type != "delay" || p.SampleType[1].Unit != "nanoseconds" {
		t.Errorf("sample types %v", p.SampleType)
	}
}

// Waits at one place with the same labels are one sample; another policy is another.
func TestLockProfileAddsUp(t *testing.T) {
	l := NewLocks()
	for i := range 10 {
		pol := "locked"
		if i >= 7 {
			pol = "unlocked"
		}
		l.Waited(trace.Wait{Class: "page", Op: "write", Policy: pol, Nanos: 100})
	}
	l.Waited(trace.Wait{Class: "empty", Nanos: 5})
	l.Waited(trace.Wait{Class: "worker_idle", Nanos: 1e9})
	p := l.Profile()
	got := map[string][2]int64{}
	for _, s := range p.Sample {
		pol := ""
		if len(s.Label["policy"]) > 0 {
			pol = s.Label["policy"][0]
		}
		got[s.Label["lock"][0]+" "+pol] = [2]int64{s.Value[0], s.Value[1]}
	}
	if len(got) != 3 || got["page locked"] != [2]int64{7, 700} || got["page unlocked"] != [2]int64{3, 300} || got["empty "] != [2]int64{1, 5} {
		t.Errorf("%v", got)
	}
}

func TestStartWritesFiles(t *testing.T) {
	dir := t.TempDir()
	in := func(n string) string { return filepath.Join(dir, n) }
	stop, err := Start(Paths{CPU: in("cpu"), Mutex: in("mutex"), Block: in("block"), Lock: in("lock")})
	if err != nil {
		t.Fatal(err)
	}
	contend(sched.NewTask("main"))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if trace.On() {
		t.Error("the sink stays installed")
	}
	for _, n := range []string{"cpu", "mutex", "block", "lock"} {
		f, err := os.Open(in(n))
		if err != nil {
			t.Fatal(err)
		}
		p, err := profile.Parse(f)
		f.Close()
		if err != nil || p.CheckValid() != nil {
			t.Errorf("%s: %v", n, err)
		}
		if n != "cpu" && len(p.Sample) == 0 {
			t.Errorf("%s has no samples", n)
		}
	}
	if _, err := Start(Paths{Lock: in("lock2"), Block: in("no/such/folder")}); err == nil || trace.On() {
		t.Errorf("a path that cannot be made: %v, sink %v", err, trace.On())
	}
}

// TestCPULabels: while a CPU profile is taken, the goroutine of a task carries what it does and the
// policy, and afterwards none is told. The goroutine profile has the labels of goroutines, so no
// sample has to be waited for.
func TestCPULabels(t *testing.T) {
	doing := func() (op, policy string) {
		k := sched.NewTask("main")
		k.Policy = "range-lock"
		var b bytes.Buffer
		w := k.Go("w", func(k *sched.Task) {
			k.Doing("truncate")
			if err := rtpprof.Lookup("goroutine").WriteTo(&b, 0); err != nil {
				t.Error(err)
			}
		})
		k.Join(w)
		p, err := profile.Parse(&b)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range p.Sample {
			if l := s.Label["op"]; len(l) == 1 {
				return l[0], s.Label["policy"][0]
			}
		}
		return "", ""
	}
	stop, err := Start(Paths{CPU: filepath.Join(t.TempDir(), "cpu")})
	if err != nil {
		t.Fatal(err)
	}
	if op, policy := doing(); op != "truncate" || policy != "range-lock" {
		t.Errorf("a task that truncates under range-lock is labelled %q, %q", op, policy)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if op, _ := doing(); op != "" {
		t.Errorf("the label %q after the profile", op)
	}
}

func TestServe(t *testing.T) {
	s, err := Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	contend(sched.NewTask("main"))
	get := func(path string) []byte {
		r, err := http.Get("http://" + s.Addr() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != 200 {
			t.Fatalf("%s: %s %v", path, r.Status, err)
		}
		return b
	}
	p, err := profile.ParseData(get("/debug/pprof/lock"))
	if err != nil || len(p.Sample) != 1 {
		t.Errorf("lock profile: %v", err)
	}
	if b := get("/debug/pprof/"); !bytes.Contains(b, []byte("goroutine")) {
		t.Error("no index")
	}
	if err := s.Close(); err != nil || trace.On() {
		t.Errorf("%v, sink on %v", err, trace.On())
	}
	if _, err := http.Get("http://" + s.Addr() + "/"); err == nil {
		t.Error("the server still answers")
	}
}

func BenchmarkWaited(b *testing.B) {
	l := NewLocks()
	w := trace.Wait{Class: "page", Op: "write", Policy: "locked", Nanos: 100}
	b.ReportAllocs()
	for range b.N {
		l.Waited(w)
	}
}
