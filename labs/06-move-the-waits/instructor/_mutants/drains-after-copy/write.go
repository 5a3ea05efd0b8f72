// Package movethewaits is lab 6: the waits of a buffered write. See README.md.
package movethewaits

import "btrlab/labs/kit"

// Write writes w, a few pages, through the page cache: it waits for direct writes when the bytes
// are copied.
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
	w.Drain(t)
	w.Unlock(t)
	w.Throttle(t)
	return nil
}

func Answers() map[string]string { return nil }
