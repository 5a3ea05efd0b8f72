package cli

import (
	"errors"
	"strings"
)

// several is the errors of a verb that goes on after what it cannot do, as rm does. Main prints
// each on a line of its own.
type several []error

func (s several) Error() string {
	lines := make([]string, len(s))
	for i, err := range s {
		lines[i] = oneLine(err)
	}
	return strings.Join(lines, "; ")
}

func (s several) Unwrap() []error { return s }

// each calls f for the errors that err is made of.
func each(err error, f func(err error)) {
	l, ok := err.(several)
	if !ok {
		l = several{err}
	}
	for _, e := range l {
		f(e)
	}
}

// add notes err, and reports whether the verb goes on: not after an interrupt.
func (s *several) add(err error) (goOn bool) {
	if err != nil {
		each(err, func(err error) { *s = append(*s, err) })
	}
	return !errors.Is(err, errInterrupted)
}

// err is the errors as one, or nil.
func (s several) err() error {
	switch len(s) {
	case 0:
		return nil
	case 1:
		return s[0]
	}
	return s
}

// withCommit is err and the error of the commit after it, which says that what the verb has done is
// not in the image.
func withCommit(err, commit error) error {
	switch l, ok := err.(several); {
	case commit == nil:
		return err
	case err == nil, errors.Is(err, errInterrupted):
		return commit
	case ok:
		return append(l, commit)
	}
	return err
}
