// Package unaligned is lab 10: a direct write of less than a block. See README.md.
package unaligned

import "btrlab/labs/kit"

// Write carries out w.
//
// This one is right, and slow: no two writes of a file are ever in flight together. Change it.
func Write(t *kit.Task, w *kit.SectorWrite) {
	w.Alone(t)
	if !w.Inside(t) {
		w.Unlock(t)
		w.Cache(t)
		return
	}
	w.Drain(t)
	send(t, w)
}

// send writes in place, with i_rwsem held, and lets it go.
func send(t *kit.Task, w *kit.SectorWrite) {
	sent := w.Submit(t)
	if sent {
		w.Wait(t)
	}
	w.Unlock(t)
	if !sent {
		w.Cache(t)
	}
}

// Answers says of each fault what it breaks: WORKLOAD=SCHEDULE, or "never". See README.md.
func Answers() map[string]string {
	return map[string]string{
		"drain-nothing": "?",
		"inside-once":   "?",
		"look-once":     "?",
		"found-gone":    "?",
	}
}
