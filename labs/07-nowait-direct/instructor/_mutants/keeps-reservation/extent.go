// Package nowaitdirect is lab 7: the steps of a NOWAIT direct write. See README.md.
package nowaitdirect

import (
	"errors"

	"btrlab/labs/kit"
)

// Extent starts the extent x of a direct write whose caller said NOWAIT.
func Extent(t *kit.Task, x *kit.NowaitExtent) error {
	if !x.TryRange(t) {
		return kit.EAGAIN
	}
	if err := x.Reserve(t, kit.NoFlush); err != nil {
		x.UnlockRange(t)
		if errors.Is(err, kit.ENOSPC) || errors.Is(err, kit.EDQUOT) {
			return kit.EAGAIN
		}
		return err
	}
	if err := x.Place(t); err != nil {
		x.UnlockRange(t)
		return err
	}
	x.Start(t)
	x.UnlockRange(t)
	return nil
}

func Answers() map[string]string { return nil }
