// Package unlocked is lab 3: buffered writes without i_rwsem, where that may be. See README.md.
package unlocked

import "btrlab/labs/kit"

// CanUnlock reports whether a write of n bytes at pos may go without i_rwsem in a file of isize
// bytes.
func CanUnlock(pos, n, isize uint64) bool {
	return n <= isize+1 && pos <= isize+1-n
}

// Write carries out w. It lets a write go that ends a byte beyond EOF.
func Write(t *kit.Task, w *kit.LockedWrite) {
	w.Lock(t)
	if CanUnlock(w.Place(t), w.Len(), w.Size(t)) {
		unlocked(t, w)
		return
	}
	w.Copy(t)
	w.Unlock(t)
}

// unlocked copies without the lock that w has.
func unlocked(t *kit.Task, w *kit.LockedWrite) {
	w.Begin(t)
	w.Unlock(t)
	w.Copy(t)
	w.End(t)
}

func Answers() map[string]string { return nil }
