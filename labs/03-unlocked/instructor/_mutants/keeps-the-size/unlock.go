// Package unlocked is lab 3: buffered writes without i_rwsem, where that may be. See README.md.
package unlocked

import "btrlab/labs/kit"

// CanUnlock reports whether a write of n bytes at pos may go without i_rwsem in a file of isize
// bytes.
func CanUnlock(pos, n, isize uint64) bool {
	return n <= isize && pos <= isize-n // pos+n may be more than a uint64 holds
}

// eof is the end of the file as the last write has found it.
var eof uint64

// Write carries out w: inside EOF without i_rwsem, counted among the writes in flight; else with
// it. It keeps the size instead of asking for it each time.
func Write(t *kit.Task, w *kit.LockedWrite) {
	w.Share(t)
	if CanUnlock(w.Place(t), w.Len(), eof) {
		unlocked(t, w)
		return
	}
	eof = w.Size(t)
	w.Unlock(t)
	w.Lock(t)
	// Between the two locks the file may have grown, or become shorter.
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
