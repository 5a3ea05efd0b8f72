// Package preparefirst is lab 9: a file extent on its way into the log tree of an fsync. See
// README.md.
package preparefirst

import "btrlab/labs/kit"

// Put puts the file extent x and its checksums into the log. It leaves everything to a commit.
func Put(t *kit.Task, x *kit.LogItem) error {
	return errTooHard
}

type hard string

func (h hard) Error() string { return string(h) }

const errTooHard = hard("this is too hard")

func Answers() map[string]string { return nil }
