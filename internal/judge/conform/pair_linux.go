//go:build !portable

package conform

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"btrlab/internal/blockdev"
)

// runPair does both operations of a pair at once, on a copy of the image: the first task begins
// after it has counted to early, or the other one if that is less than 0.
func (k *tracedKernel) runPair(image *blockdev.Memory, p *Pair, early int) (list []Event, err error) {
	err = k.mount(image, p.op(), func(h *host, m *mounted) error {
		for _, direct := range []bool{false, true} { // the tasks share what is open
			if _, err := h.open("f", direct); err != nil {
				return err
			}
		}
		list, err = k.traced(m, func() error {
			return atOnce(m, early, func() error { return script(h, p.First) }, func() error { return script(h, p.Other) })
		})
		return err
	})
	return list, err
}

// atOnce runs two functions on threads of their own, whose numbers m learns, and which begin
// together but for what early says.
func atOnce(m *mounted, early int, first, other func() error) error {
	m.tids = make([]int, 2)
	errs := make([]error, 2)
	var ready atomic.Int32
	var wg sync.WaitGroup
	for i, do := range []func() error{first, other} {
		count := max(0, early)
		if i == 1 {
			count = max(0, -early)
		}
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			m.tids[i] = unix.Gettid()
			ready.Add(1)
			for ready.Load() < 2 {
				runtime.Gosched()
			}
			for range count {
				ready.Load()
			}
			errs[i] = do()
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
