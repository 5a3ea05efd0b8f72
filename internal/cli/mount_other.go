//go:build !linux

package cli

import (
	"errors"
	"fmt"
)

func isDaemon() bool { return false }

func (a *app) startDaemon() error { return errors.ErrUnsupported }

func mountedDaemon() error { return errors.ErrUnsupported }

func (a *app) mountNote(line string) { fmt.Fprintf(a.err, "btrlab: %s\n", line) }
