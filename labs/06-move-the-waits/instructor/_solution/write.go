// Package movethewaits is lab 6: the waits of a buffered write. See README.md.
package movethewaits

import "btrlab/labs/kit"

// Write writes w, a few pages, through the page cache: it waits before i_rwsem is taken and looks
// again with it held.
func Write(t *kit.Task, w *kit.WaitedWrite) error {
	start, end := w.Range()
	if w.Inside(t) {
		w.WaitWriteback(t, start, end)
		w.WaitOrdered(t, start, end)
		w.Drain(t)
	}
	if err := w.Reserve(t); err != nil {
		return err
	}
	if err := w.Lock(t); err != nil {
		return err
	}
	w.Drain(t)
	for {
		if err := w.LockPages(t); err != nil {
			w.Unlock(t)
			return err
		}
		w.WaitWriteback(t, start, end)
		w.LockRange(t)
		if !w.Ordered(t) {
			break
		}
		w.UnlockRange(t)
		w.UnlockPages(t)
		w.WaitOrdered(t, start, end)
	}
	w.Copy(t)
	w.UnlockPages(t)
	w.Unlock(t)
	w.Throttle(t)
	return nil
}

func Answers() map[string]string {
	return map[string]string{
		"writeback-unlocked": "never",
		"ordered-no":         "wait-stable=11:2",
		"drain-unlocked":     "wait-direct=8:1,12:2",
		"ordered-twice":      "wait-next=7:2,10:1,16:3,20:2",
		"first-look":         "54.1",
	}
}
