// Package unlocked is lab 3: buffered writes without i_rwsem, where that may be. See README.md.
package unlocked

import "btrlab/labs/kit"

// CanUnlock reports whether a write of n bytes at pos may go without i_rwsem in a file of isize
// bytes.
func CanUnlock(pos, n, isize uint64) bool {
	return n <= isize && pos <= isize-n // pos+n may be more than a uint64 holds
}

// Write carries out w: inside EOF without i_rwsem, counted among the writes in flight; else with
// it.
func Write(t *kit.Task, w *kit.LockedWrite) {
	w.Share(t) // no truncate comes between the question and Begin
	if CanUnlock(w.Place(t), w.Len(), w.Size(t)) {
		unlocked(t, w)
		return
	}
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

func Answers() map[string]string {
	return map[string]string{
		"count-late":  "inside-truncate=15:2",
		"place-once":  "one-byte-beyond=11:2",
		"share-alone": "never",
		"place-moves": "append-truncate=14:2",
		"appends-too": "4.27",
	}
}
