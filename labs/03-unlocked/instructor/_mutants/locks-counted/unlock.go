// Package unlocked is lab 3: buffered writes without i_rwsem, where that may be. See README.md.
package unlocked

import "btrlab/labs/kit"

// CanUnlock reports whether a write of n bytes at pos may go without i_rwsem in a file of isize
// bytes.
func CanUnlock(pos, n, isize uint64) bool {
	return n <= isize && pos <= isize-n
}

// Write carries out w. It takes the lock again while it is counted.
func Write(t *kit.Task, w *kit.LockedWrite) {
	w.Lock(t)
	if CanUnlock(w.Place(t), w.Len(), w.Size(t)) {
		w.Begin(t)
		w.Unlock(t)
		w.Copy(t)
		w.Lock(t)
		w.End(t)
		w.Unlock(t)
		return
	}
	w.Copy(t)
	w.Unlock(t)
}

func Answers() map[string]string { return nil }
