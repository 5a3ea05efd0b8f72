package judges

import (
	"strings"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/testing/need"
	disk "btrlab/labs/16-serve-a-disk"
	"btrlab/labs/kit"
)

// faulty is what is wrong in lab 16's solution.
type faulty struct {
	joins    bool // the Sync under way
	each     bool // flush has a Sync
	again    bool // what was told is told at every flush
	asker    bool // the one who had the Sync is told, nobody else
	firstTwo bool // connections are told, the others not
}

// answering is lab 16's solution with what is wrong in it.
type answering struct {
	faulty

	mu           kit.Mutex
	changed      kit.Cond
	begun, ended kit.Var[int]
	failed       kit.Var[error]
	failures     kit.Var[int]
	told         kit.Var[[400]int]
}

func (x faulty) lab() Disk {
	return Disk{New: func() kit.Flusher {
		f := &answering{faulty: x}
		f.mu.Init()
		f.changed.Init()
		return f
	}, Predict: disk.Predict}
}

func (x *answering) Flush(t *kit.Task, d *kit.Disk) error {
	x.mu.Lock(t)
	want, had := x.begun.Load(t)+1, false
	if x.joins {
		want = x.ended.Load(t) + 1
	}
	for x.ended.Load(t) < want || x.each && !had {
		if n := x.begun.Load(t); n > x.ended.Load(t) {
			x.changed.Wait(t, &x.mu)
		} else {
			had = true
			x.begun.Store(t, n+1)
			x.mu.Unlock(t)
			err := d.Sync(t)
			x.mu.Lock(t)
			x.ended.Store(t, n+1)
			if x.changed.Broadcast(t); err != nil {
				x.failed.Store(t, err)
				x.failures.Store(t, x.failures.Load(t)+1)
			}
		}
	}
	var err error
	c, told, n := d.Connection(t), x.told.Load(t), x.failures.Load(t)
	if told[c] != n && (had || !x.asker) && (c < 2 || !x.firstTwo) {
		err = x.failed.Load(t)
		if told[c] = n; !x.again {
			x.told.Store(t, told)
		}
	}
	x.mu.Unlock(t)
	return err
}

// TestFlushes: the solution passes, and each of its wrong forms fails in the row that is made for
// it.
func TestFlushes(t *testing.T) {
	need.Long(t)
	for _, tt := range []struct {
		name string
		x    faulty
		row  string // the first that fails; empty is none
		want string
	}{
		{"right", faulty{}, "", ""},
		{"joins", faulty{joins: true}, "flush-two", "violated (durability): connection 1 is told that its flush is done, and a power cut now loses write 1"},
		{"each", faulty{each: true}, "flush-shared", "violated (sharing): Sync 3 begins"},
		{"again", faulty{again: true}, "fail-alone", `violated (error): connection 0 is told "input/output error", and was told`},
		{"asker", faulty{asker: true}, "fail-others", "violated (durability): connection 0 is told that its flush is done, and write 0, which connection 1 had an answer for, is lost by a Sync that failed"},
		{"firstTwo", faulty{firstTwo: true}, "power-cut", "violated (error): a Sync that connection 0 asked for has failed, and the next flush of connection 10 returns nil"},
	} {
		failed, why := "", ""
		for _, r := range Judge(tt.x.lab(), &sandbox.Run{Schedules: 3000}) {
			if !r.Pass && failed == "" && r.Name != "predict" && r.Result != NoAnswer {
				failed, why = r.Name, r.Result
			}
		}
		if failed != tt.row || !strings.HasPrefix(why, tt.want) {
			t.Errorf("%s: %s fails first with %q, want %s with %q", tt.name, failed, why, tt.row, tt.want)
		}
	}
}

// TestOverlappingSyncs: with a Sync for each flush and all at one time there are more flushes a
// second than the row asks for, and as many Syncs.
func TestOverlappingSyncs(t *testing.T) {
	l := Disk{New: func() kit.Flusher { return disk.New() }}
	one, err := guests(byTurns(), 1, rateDevice, rateThink)
	if err != nil {
		t.Fatal(err)
	}
	all, err := guests(func(task *sched.Task, s syncOf) error { return s.Sync(task) }, rateConnections, rateDevice, rateThink)
	if err != nil || all.PerSecond < rateLeast*one.PerSecond || all.syncs != 1 {
		t.Errorf("%+v and %+v, %v: too slow to tempt anybody", one, all, err)
	}
	if ok, text, err := l.rate(); ok || err != nil {
		t.Errorf("%s, %v: the starter passes", text, err)
	}
}

// TestPredictsFlushes: the shape of what is measured: sixteen guests that do not think have eight
// times what one has, since each has a flush for every second Sync.
func TestPredictsFlushes(t *testing.T) {
	one, err := guests(grouped(), 1, rateDevice, 0)
	if err != nil {
		t.Fatal(err)
	}
	all, err := guests(grouped(), 16, rateDevice, 0)
	if x := all.PerSecond / one.PerSecond; err != nil || x < 7.5 || x > 8.2 || all.syncs > 0.13 {
		t.Errorf("%.2f times the flushes of one, %.3f Syncs for each, %v", x, all.syncs, err)
	}
}
