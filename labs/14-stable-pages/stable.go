// Package stable is lab 14: pages that are written again while the device reads them. See
// README.md.
package stable

import "btrlab/labs/kit"

// Write writes w, a few pages, through the page cache. An error is the write's; what is reserved
// goes back then.
//
// This one waits for nobody who reads the pages. Change it, or Device, or both.
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

// Device sends r to the device.
//
// This one is that of the kernel.
func Device(t *kit.Task, r *kit.DirtyRun) {
	r.Unlock(t)
	r.Sum(t)
	r.Submit(t)
}

// Predict says how often the page of h is written in a second: if a write waits until the device
// has the page, and if the device has a copy.
func Predict(h kit.HotPage) kit.Rewrites {
	return kit.Rewrites{}
}

// Answers says of each fault what it breaks: WORKLOAD=SCHEDULE, or "never". See README.md.
func Answers() map[string]string {
	return map[string]string{
		"copy-nothing": "?",
		"copy-late":    "?",
		"unlock-late":  "?",
		"between":      "?",
	}
}
