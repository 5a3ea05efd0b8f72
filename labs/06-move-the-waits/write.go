// Package movethewaits is lab 6: the waits of a buffered write. See README.md.
package movethewaits

import "btrlab/labs/kit"

// Write writes w, a few pages, through the page cache. An error is the write's; what is reserved
// goes back then.
//
// This one takes all its locks first and then waits with them held, and not every wait can be done
// so. Change it.
func Write(t *kit.Task, w *kit.WaitedWrite) error {
	start, end := w.Range()
	if err := w.Lock(t); err != nil {
		return err
	}
	if err := w.LockPages(t); err != nil {
		w.Unlock(t)
		return err
	}
	w.LockRange(t)

	w.Drain(t)
	w.WaitWriteback(t, start, end)
	if w.Ordered(t) {
		w.WaitOrdered(t, start, end)
	}
	if err := w.Reserve(t); err != nil {
		w.UnlockRange(t)
		w.UnlockPages(t)
		w.Unlock(t)
		return err
	}
	w.Throttle(t)

	w.Copy(t)
	w.UnlockPages(t)
	w.Unlock(t)
	return nil
}

// Answers says of each fault what it breaks: WORKLOAD=SCHEDULE, or "never"; first-look is a
// number. See README.md.
func Answers() map[string]string {
	return map[string]string{
		"writeback-unlocked": "?",
		"ordered-no":         "?",
		"drain-unlocked":     "?",
		"ordered-twice":      "?",
		"first-look":         "?",
	}
}
