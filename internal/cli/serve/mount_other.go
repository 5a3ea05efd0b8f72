//go:build !linux

package serve

import (
	"errors"
	"fmt"
)

func isDaemon() bool { return false }

func (a verbs) startDaemon() error { return errors.ErrUnsupported }

func mountedDaemon() error { return errors.ErrUnsupported }

func (a verbs) mountNote(line string) { fmt.Fprintf(a.Err, "btrlab: %s\n", line) }
