package app

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitInterrupted = 130
)

var (
	// ErrFound ends a verb that has printed what it found.
	ErrFound = errors.New("found something")
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

// OneLine is an error without line breaks.
func OneLine(err error) string { return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ") }

// Usagef is an error in the command line of cmd.
func Usagef(cmd *cobra.Command, format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...), cmd.CommandPath()}
}
