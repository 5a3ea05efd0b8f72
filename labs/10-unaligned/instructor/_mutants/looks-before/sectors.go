// Package unaligned is lab 10: a direct write of less than a block. See README.md.
package unaligned

import "btrlab/labs/kit"

// Write looks under a lock that it has let go when it writes.
func Write(t *kit.Task, w *kit.SectorWrite) {
	w.Share(t)
	together := w.Inside(t) && w.Look(t) == kit.Written
	w.Unlock(t)
	if together {
		w.Share(t)
		w.Submit(t)
		w.Wait(t)
		w.Unlock(t)
		return
	}
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
