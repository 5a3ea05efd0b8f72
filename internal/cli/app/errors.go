package app

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2 // or NoVerdict

	ExitUncorrectable = 3 // of scrub
	ExitInterrupted   = 130
)

var (
	// ErrFound ends a verb that has printed what it found.
	ErrFound = errors.New("found something")
	// ErrUncorrectable ends a scrub that cannot correct all errors.
	ErrUncorrectable = errors.New("there are uncorrectable errors")
	// SIGINT ends a verb with one of these: ErrInterrupted when it has changed an image, ErrStopped
	// when it has printed what it found so far, ErrMeasured and ErrRounds what it measured,
	// ErrNothing when it has nothing to print, ErrUnmade when what it was making is no file system.
	ErrInterrupted error = Interruption("interrupted; what was done before is committed")
	ErrMeasured    error = Interruption("interrupted; the result is what was measured until then")
	ErrRounds      error = Interruption("interrupted; the result has the rounds that ended")
	ErrUnmade      error = Interruption("interrupted; the image is not made")
	ErrStopped     error = Interruption("interrupted; the result is what was searched until then")
	ErrNothing     error = Interruption("interrupted; there is no result")
)

// Interruption is the message of a verb that SIGINT ended.
type Interruption string

func (e Interruption) Error() string { return string(e) }

// UsageError is an error in the command line: exit 2.
type UsageError struct {
	Err  error
	Path string // of the command, for the hint
}

func (e *UsageError) Error() string { return e.Err.Error() }

func (e *UsageError) Unwrap() error { return e.Err }

// NoVerdict is why there is no answer, which is none of good or bad: a kernel that was to be asked
// gave none, a shard is missing. Exit 2.
type NoVerdict struct{ Err error }

func (e *NoVerdict) Error() string { return e.Err.Error() }

func (e *NoVerdict) Unwrap() error { return e.Err }

// Asked is the error of a verb that asks a kernel: whatever kept it from an answer is no verdict.
func Asked(err error) error {
	var usage *UsageError
	var stop Interruption
	if err == nil || errors.Is(err, ErrFound) || errors.As(err, &usage) || errors.As(err, &stop) {
		return err
	}
	return &NoVerdict{err}
}

// OneLine is an error without line breaks.
func OneLine(err error) string { return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ") }

// Usagef is an error in the command line of cmd.
func Usagef(cmd *cobra.Command, format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...), cmd.CommandPath()}
}
