// Package unlocked is lab 3: buffered writes without i_rwsem, where that may be. See README.md.
package unlocked

import "btrlab/labs/kit"

// CanUnlock reports whether a write of n bytes at pos may go without i_rwsem in a file of isize
// bytes.
func CanUnlock(pos, n, isize uint64) bool {
	return pos < isize
}

// Write carries out w.
//
// This one is fast, and right as long as nobody else changes the size of the file. Change it.
func Write(t *kit.Task, w *kit.LockedWrite) {
	pos := w.Place(t)
	if CanUnlock(pos, w.Len(), w.Size(t)) {
		w.Copy(t)
		return
	}
	w.Share(t)
	w.Copy(t)
	w.Unlock(t)
}

// Answers says of each fault what it breaks: WORKLOAD=SCHEDULE, or "never"; appends-too is a
// number. See README.md.
func Answers() map[string]string {
	return map[string]string{
		"count-late":  "?",
		"place-once":  "?",
		"share-alone": "?",
		"place-moves": "?",
		"appends-too": "?",
	}
}
