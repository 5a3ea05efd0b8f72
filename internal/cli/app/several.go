package app

import (
	"errors"
	"strings"
)

// Several is the errors of a verb that goes on after what it cannot do, as rm does. Main prints
// each on a line of its own.
type Several []error

func (s Several) Error() string {
	lines := make([]string, len(s))
	for i, err := range s {
		lines[i] = OneLine(err)
	}
	return strings.Join(lines, "; ")
}

func (s Several) Unwrap() []error { return s }

// Each calls f for the errors that err is made of.
func Each(err error, f func(err error)) {
	l, ok := err.(Several)
	if !ok {
		l = Several{err}
	}
	for _, e := range l {
		f(e)
	}
}

// Add notes err, and reports whether the verb goes on: not after an interrupt.
func (s *Several) Add(err error) (goOn bool) {
	if err != nil {
		Each(err, func(err error) { *s = append(*s, err) })
	}
	return !errors.Is(err, ErrInterrupted)
}

// Err is the errors as one, or nil.
func (s Several) Err() error {
	switch len(s) {
	case 0:
		return nil
	case 1:
		return s[0]
	}
	return s
}

// WithCommit is err and the error of the commit after it, which says that what the verb has done is
// not in the image.
func WithCommit(err, commit error) error {
	switch l, ok := err.(Several); {
	case commit == nil:
		return err
	case err == nil, errors.Is(err, ErrInterrupted):
		return commit
	case ok:
		return append(l, commit)
	}
	return err
}
