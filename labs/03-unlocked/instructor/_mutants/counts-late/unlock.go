// Package unlocked is lab 3: buffered writes without i_rwsem, where that may be. See README.md.
package unlocked

import "btrlab/labs/kit"

// CanUnlock reports whether a write of n bytes at pos may go without i_rwsem in a file of isize
// bytes.
func CanUnlock(pos, n, isize uint64) bool {
	return n <= isize && pos <= isize-n
}

// Write carries out w. It is counted after the lock is gone.
func Write(t *kit.Task, w *kit.LockedWrite) {
	w.Lock(t)
	if CanUnlock(w.Place(t), w.Len(), w.Size(t)) {
		w.Unlock(t)
		w.Begin(t)
		w.Copy(t)
		w.End(t)
		return
	}
	w.Copy(t)
	w.Unlock(t)
}

func Answers() map[string]string { return nil }
