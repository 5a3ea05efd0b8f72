// Package preparefirst is lab 9: a file extent on its way into the log tree of an fsync. See
// README.md.
package preparefirst

import "btrlab/labs/kit"

// Put puts the file extent x and its checksums into the log. It is right, and makes the item with
// the leaf locked.
func Put(t *kit.Task, x *kit.LogItem) error {
	if err := x.Sums(t); err != nil {
		return err
	}
	placed := false
	if x.Again() {
		var err error
		if placed, err = x.Drop(t); err != nil {
			return err
		}
		if !placed {
			x.Release(t)
		}
	}
	if !placed {
		if err := x.Insert(t); err != nil {
			return err
		}
	}
	x.Prepare(t)
	x.Copy(t)
	x.Release(t)
	return nil
}

func Answers() map[string]string { return nil }
