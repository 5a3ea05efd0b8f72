// Package preparefirst is lab 9: a file extent on its way into the log tree of an fsync. See
// README.md.
package preparefirst

import "btrlab/labs/kit"

// Put puts the file extent x and its checksums into the log. It leaves what the log has already to
// a commit.
func Put(t *kit.Task, x *kit.LogItem) error {
	x.Prepare(t)
	if err := x.Sums(t); err != nil {
		return err
	}
	if x.Again() {
		return errAgain
	}
	if err := x.Insert(t); err != nil {
		return err
	}
	x.Copy(t)
	x.Release(t)
	return nil
}

type again string

func (a again) Error() string { return string(a) }

const errAgain = again("the log has the file")

func Answers() map[string]string { return nil }
