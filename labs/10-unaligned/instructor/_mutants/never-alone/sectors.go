// Package unaligned is lab 10: a direct write of less than a block. See README.md.
package unaligned

import "btrlab/labs/kit"

// Write puts zeros around its sectors under the shared lock.
func Write(t *kit.Task, w *kit.SectorWrite) {
	w.Share(t)
	if !w.Inside(t) {
		w.Unlock(t)
		w.Cache(t)
		return
	}
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
