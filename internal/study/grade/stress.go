package grade

import (
	"cmp"
	"fmt"
	"time"

	"btrlab/internal/data/inode"
	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
)

// exclusion makes range locks of newLock's and notes the first time that a task is told that it
// holds a byte which another task holds. It is for virtual time, where one task runs at a time.
type exclusion struct {
	newLock func() inode.RangeLocker
	wrong   error
}

func (x *exclusion) make() inode.RangeLocker { return &judgedLock{judge: x, of: x.newLock()} }

// judgedLock is a range lock with a list of who holds what.
type judgedLock struct {
	judge *exclusion
	of    inode.RangeLocker
	held  []lockedSpan
}

type lockedSpan struct {
	span
	task *sched.Task
}

// Lock locks [start, end).
func (l *judgedLock) Lock(t *sched.Task, start, end uint64) {
	l.of.Lock(t, start, end)
	for _, h := range l.held {
		if h.start < end && start < h.end && l.judge.wrong == nil {
			l.judge.wrong = fmt.Errorf("violated (%v): %s got %v while %s holds %v", overlaps, t.Name, span{start, end}, h.task.Name, h.span)
		}
	}
	l.held = append(l.held, lockedSpan{span{start, end}, t})
}

// Unlock lets it go.
func (l *judgedLock) Unlock(t *sched.Task, start, end uint64) {
	for i, h := range l.held {
		if h.span == (span{start, end}) && h.task == t {
			l.held[i] = l.held[len(l.held)-1]
			l.held = l.held[:len(l.held)-1]
			break
		}
	}
	l.of.Unlock(t, start, end)
}

// The measures of the stress of a range lock.
const (
	stressTasks  = 8     // and CPUs
	stressTurns  = 2_000 // of each task that wakes the others
	stressHeld   = 40 * time.Millisecond
	stressRandom = 400 // ranges of each task in the second half
)

// lockStress asks a range lock twice in virtual time. First one task holds a range and others wait
// for it while the rest take and leave ranges of their own, thousands of times: each of those
// wake-ups is for nobody. Then all take ranges of every size and place.
func lockStress(s *Student) (bool, string, error) {
	dog.again()
	turns, judge := 0, &exclusion{newLock: s.NewRangeLock}
	_, err := vtime.Run(vtime.Machine{CPUs: stressTasks}, func(t *sched.Task) {
		l := judge.make()
		_, _ = inTasks(t, stressTasks, func(t *sched.Task, i int) error {
			switch i {
			case 0:
				l.Lock(t, 0, 64<<10)
				t.Sleep(stressHeld)
				l.Unlock(t, 0, 64<<10)
			case 1, 2, 3: // they wait for task 0, and for each other
				t.Sleep(time.Microsecond)
				at := uint64(i) * 12 << 10
				l.Lock(t, at, at+32<<10)
				t.Sleep(time.Microsecond)
				l.Unlock(t, at, at+32<<10)
			default:
				at := uint64(i) << 20
				for range stressTurns {
					l.Lock(t, at, at+4096)
					t.Sleep(2 * time.Microsecond)
					l.Unlock(t, at, at+4096)
					t.Sleep(time.Microsecond)
					turns++
				}
			}
			return nil
		})
		l = judge.make()
		_, _ = inTasks(t, stressTasks, func(t *sched.Task, i int) error {
			for n := range stressRandom {
				start, end := anyRange(i, n)
				l.Lock(t, start, end)
				t.Sleep(time.Duration(n%7) * 500 * time.Nanosecond)
				l.Unlock(t, start, end)
				turns++
			}
			return nil
		})
	})
	if err = cmp.Or(judge.wrong, err); err != nil {
		return false, "", err
	}
	return true, fmt.Sprintf("%d turns of %d tasks, no byte held twice", turns, stressTasks), nil
}

// anyRange is the n-th range of a task: of a byte to gigabytes, at the beginning of a file or far
// into it. The same in every run.
func anyRange(task, n int) (start, end uint64) {
	x := uint64(task*7919+n+1) * 0x9e3779b97f4a7c15
	x ^= x >> 29
	near := (x >> 8) % (256 << 10)
	size := uint64(1) << (x % 18)
	if n%5 == 0 {
		near += measuredBytes - 128<<10
	}
	if n%50 == 0 {
		return near, near + 1<<40
	}
	return near, near + size
}
