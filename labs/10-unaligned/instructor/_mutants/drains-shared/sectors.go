// Package unaligned is lab 10: a direct write of less than a block. See README.md.
package unaligned

import "btrlab/labs/kit"

// Write carries out w: together with others in a block that is written, else alone.
func Write(t *kit.Task, w *kit.SectorWrite) {
	w.Share(t)
	w.Drain(t)
	if w.Inside(t) && w.Look(t) == kit.Written {
		send(t, w)
		return
	}
	w.Unlock(t)
	// What was found out is old: i_rwsem was free.
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

func Answers() map[string]string { return nil }
