// Package stable is a mistake: a copy is thought to make the writer wait as well.
package stable

import "btrlab/labs/kit"

// Write writes w, a few pages, through the page cache. The device does not read them, so it may be
// busy with what they were.
func Write(t *kit.Task, w *kit.WaitedWrite) error {
	if err := w.Reserve(t); err != nil {
		return err
	}
	if err := w.Lock(t); err != nil {
		return err
	}
	w.Drain(t)
	if err := w.LockPages(t); err != nil {
		w.Unlock(t)
		return err
	}
	w.LockRange(t)
	w.Copy(t)
	w.UnlockPages(t)
	w.Unlock(t)
	w.Throttle(t)
	return nil
}

// Device copies while the pages are locked: afterwards others may write to them.
func Device(t *kit.Task, r *kit.DirtyRun) {
	r.Copy(t)
	r.Unlock(t)
	r.Sum(t)
	r.Submit(t)
}

// Predict says how often the page of h is written in a second. A writer of a page that is copied
// waits for nothing. Otherwise writeback begins while the writer thinks, at any time of that with
// the same chance: what is left to think is no wait, and what the device needs beyond it is.
func Predict(h kit.HotPage) kit.Rewrites {
	device, every, think := float64(h.Device), float64(h.Every), float64(h.Think)
	waits := device - think/2
	if device < think {
		waits = device * device / (2 * think)
	}
	alone := 1e9 / (think + float64(h.Write))
	return kit.Rewrites{Stable: alone * (every - waits) / every, Copied: alone * (every - waits) / every}
}

func Answers() map[string]string { return nil }
