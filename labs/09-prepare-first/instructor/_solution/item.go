// Package preparefirst is lab 9: a file extent on its way into the log tree of an fsync. See
// README.md.
package preparefirst

import "btrlab/labs/kit"

// Put puts the file extent x and its checksums into the log: what needs no path before it, one
// search where one is enough, one copy.
func Put(t *kit.Task, x *kit.LogItem) error {
	x.Prepare(t)
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
	x.Copy(t)
	x.Release(t)
	return nil
}

func Answers() map[string]string {
	return map[string]string{
		"again-no":        "log-again=",
		"again-yes":       "never",
		"searches-always": "7",
	}
}
