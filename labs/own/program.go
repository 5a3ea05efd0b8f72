// Package own is a program of your own for the explorer: btrlab practice --own FILE.go runs it by
// every schedule.
package own

import (
	"fmt"

	"btrlab/labs/kit"
)

// Program starts two tasks that add one to n. Only one of them takes the lock, and that is the
// race.
//
// What tasks share is a kit.Var (a field that a lock protects), a kit.Word (a number that is read
// or changed in one step), a kit.Mutex or a kit.Cond. A plain variable that tasks share is refused,
// because the explorer does not see it.
func Program(w *kit.World) {
	var m kit.Mutex
	var n kit.Var[int]
	m.Init()
	w.Name(&m, "m")
	w.Go("careful", func(t *kit.Task) {
		m.Lock(t)
		n.Store(t, n.Load(t)+1)
		m.Unlock(t)
	})
	w.Go("careless", func(t *kit.Task) {
		n.Store(t, n.Load(t)+1) // put m.Lock(t) before this line, and m.Unlock(t) after it
	})
	w.Check(func() error {
		if n.Value() != 2 {
			return fmt.Errorf("n is %d, want 2", n.Value())
		}
		return nil
	})
}
