package gantt

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
	"btrlab/internal/testing/pagetest"
)

var (
	classA    = lockdep.NewTestClass("gantt_a", "i_rwsem")
	classIdle = lockdep.NewTestClass("gantt_idle", "device_idle")
	classWait = lockdep.NewTestClass("gantt_event", "stable_page")
)

func task(name string) *sched.Task { return &sched.Task{Name: name} }

func ms(n int64) int64 { return n * int64(time.Millisecond) }

// TestWhole: the picture of a whole run keeps all time, however often its columns widen, and each
// moment in its column.
func TestWhole(t *testing.T) {
	r := New(Options{CPUs: 2, At: -1})
	a, b := task("a"), task("b")
	r.Ran(a, 0, 0, 500) // before Begin: not the job's
	r.Begin(1000)
	l := vtime.LockID{Class: classA.ID, N: 1}
	want := map[string]int64{}
	var at int64 = 1000
	for i := int64(0); i < 5000; i++ {
		d := 100 + i*i%7919
		r.Ran(a, 0, at, at+d)
		r.Spun(b, 1, at, at+d/2)
		r.Held(a, l, at, at+d)
		r.Waited(b, l, at, at+d/3)
		want["ran"] += d
		want["spun"] += d / 2
		want["held"] += d
		want["waited"] += d / 3
		at += d + 50
	}
	r.End(at)
	w := r.whole
	have := map[string]int64{"ran": w.cpus[0].busy.sum(), "spun": w.cpus[1].wait.sum(), "held": w.locks[l].busy.sum(), "waited": w.locks[l].wait.sum()}
	for k, v := range want {
		if have[k] != v {
			t.Errorf("%s for %d ns, want %d", k, have[k], v)
		}
	}
	if w.end() < at || w.from != 1000 || w.end()-w.from > 2*(at-1000) {
		t.Errorf("the picture is from %d to %d, the run from 1000 to %d", w.from, w.end(), at)
	}
	for i, c := range w.cpus[0].busy.cells {
		if ns := c.sum(); ns > w.width {
			t.Errorf("column %d is %d ns wide and has %d ns of CPU 0", i, w.width, ns)
		}
		// The gaps are a small part of each column, so none that the run covers is nearly empty.
		if from := w.from + int64(i)*w.width; from+w.width <= at && c.sum() < w.width/2 {
			t.Errorf("column %d has %d of %d ns", i, c.sum(), w.width)
		}
	}
}

// TestWindows: of the windows at 1, 2, 4, ... times their length the busiest is drawn, with what
// began before it and ended after it; one that the run does not reach the end of is not.
func TestWindows(t *testing.T) {
	r := New(Options{CPUs: 1, Spans: []time.Duration{time.Millisecond, time.Second}, At: -1})
	a := task("a")
	r.Begin(0)
	for at := int64(0); at < ms(64); at += 1000 {
		d := int64(100)
		if at >= ms(16) && at < ms(17) {
			d = 900
		}
		r.Ran(a, 0, at, at+d)
	}
	r.Held(a, vtime.LockID{Class: classA.ID, N: 7}, ms(3), ms(60))
	r.Waited(task("b"), vtime.LockID{Class: classA.ID, N: 7}, ms(10), ms(60))
	r.End(ms(64))
	list, of := r.chosen()
	if len(list) != 2 || list[0] != r.whole || list[1].from != ms(16) || of[1] != 6 {
		t.Fatalf("%d pictures of %v windows, the last from %d", len(list), of, list[len(list)-1].from)
	}
	w := list[1]
	if ns := w.cpus[0].busy.sum(); ns != 900_000 {
		t.Errorf("the window has %d ns of the CPU, want 900000", ns)
	}
	for _, l := range w.locks {
		if l.busy.sum() != ms(1) || l.wait.sum() != ms(1) {
			t.Errorf("the window has %d ns of the lock and %d of the wait, want a millisecond of each", l.busy.sum(), l.wait.sum())
		}
	}
	at := New(Options{CPUs: 1, Spans: []time.Duration{time.Millisecond}, At: 5 * time.Millisecond})
	at.Begin(ms(2))
	at.Ran(a, 0, ms(6), ms(9))
	at.End(ms(10))
	if list, _ := at.chosen(); len(list) != 2 || list[1].from != ms(7) || list[1].cpus[0].busy.sum() != ms(1) {
		t.Errorf("%d pictures, want a window at 5 ms", len(list))
	}
}

// TestIdle: a task without work is not one that waits, and a lock's class is no event.
func TestIdle(t *testing.T) {
	r := New(Options{CPUs: 1, At: -1})
	r.Begin(0)
	a := task("a")
	r.Held(a, vtime.LockID{Class: classA.ID, N: 1}, 0, 10)
	r.Waited(a, vtime.LockID{Class: classIdle.ID}, 0, ms(1))
	r.Waited(a, vtime.LockID{}, 0, ms(1))
	r.Waited(a, vtime.LockID{Class: classA.ID}, 0, ms(1))
	r.Waited(a, vtime.LockID{Class: classWait.ID}, 0, ms(1))
	for i := range int32(classLocks + 5) { // too many locks of a class count together
		r.Waited(a, vtime.LockID{Class: classA.ID, N: i + 1}, ms(1), ms(2))
	}
	r.End(ms(2))
	_, events := r.whole.waits(0, 100)
	if len(events) != 1 || events[0].Class != classWait.ID {
		t.Errorf("events %v, want that of gantt_event", events)
	}
	locks, _ := r.whole.waits(0, 100)
	if len(locks) != classLocks+1 || locks[0].N != others || r.whole.locks[locks[0]].wait.sum() != 5*ms(1) {
		t.Errorf("locks %v", locks)
	}
}

// run is writers that share a lock, for a time.
func run(t *testing.T, d time.Duration) *Recorder {
	t.Helper()
	r := New(Options{CPUs: 3, Spans: DefaultSpans, At: -1})
	_, err := vtime.Run(vtime.Machine{CPUs: 3, Watch: r}, func(k *sched.Task) {
		var sem lock.RWSem
		sem.Init(classA)
		r.Begin(k.Now())
		end := k.Now() + int64(d)
		var all []*sched.Task
		for i := range 20 {
			all = append(all, k.Go(fmt.Sprintf("<w>.%d", i), func(k *sched.Task) {
				for n := 0; k.Now() < end; n++ {
					sem.Lock(k)
					k.Charge(time.Duration(1+(n*7+i)%13) * time.Microsecond)
					if n%5 == 0 {
						k.Sleep(30 * time.Microsecond)
					}
					sem.Unlock(k)
					k.Charge(time.Duration(1+(n*5+i)%17) * time.Microsecond)
				}
			}))
		}
		for _, w := range all {
			k.Join(w)
		}
		r.End(k.Now())
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPage: the page is well formed, needs nothing from outside, says in words and in tables what
// the pictures show, is the same every time, and does not grow with the run.
func TestPage(t *testing.T) {
	write := func(d time.Duration) string {
		var b bytes.Buffer
		if err := run(t, d).Write(&b, "job <x>", "btrlab bench --gantt"); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	page := write(100 * time.Millisecond)
	if path := os.Getenv("GANTT_KEEP"); path != "" {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if again := write(100 * time.Millisecond); again != page {
		t.Error("two runs of the same make two pages")
	}
	for _, bad := range []string{"http://", "https:", "<script", "<link", "url(", "NaN", "Inf", "<x>", "<w>"} {
		if strings.Contains(strings.ReplaceAll(page, `xmlns="http://www.w3.org/2000/svg"`, ""), bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for _, want := range []string{"of 3 CPUs were busy", "gantt_a was held 83 % of the time, and 18.6 tasks waited for it on average", `role="img" aria-label="The whole run. In `, "A window of 20.0\u202fms", "A window of 1.00\u202fms",
		`<th scope="row">gantt_a</th>`, "<title>&lt;w&gt;.1", ">CPU 2</text>", "9 other tasks"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(page, "<svg"); n != 3 {
		t.Errorf("%d pictures, want 3", n)
	}
	boxes := 0
	for _, m := range regexp.MustCompile(`M(\d+) (\d+)h(\d+)v(\d+)h-\d+z`).FindAllStringSubmatch(page, -1) {
		var box [4]int
		for i := range box {
			fmt.Sscan(m[i+1], &box[i])
		}
		if boxes++; box[0]+box[2] > columns || box[1]+box[3] > 10*rowHigh {
			t.Fatalf("box %s lies outside of its row", m[0])
		}
	}
	if boxes < 500 {
		t.Errorf("%d boxes", boxes)
	}
	pagetest.WellFormedHTML(t, page)
	short, long := len(write(400*time.Millisecond)), len(write(1600*time.Millisecond))
	if long > short*3/2 || long > 1<<19 {
		t.Errorf("the page of a run has %d bytes, that of one four times as long %d", short, long)
	}
	var b bytes.Buffer
	if err := New(Options{CPUs: 1}).Write(&b, "", ""); err == nil {
		t.Error("a page of no run")
	}
}
