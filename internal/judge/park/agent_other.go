//go:build !linux || portable

package park

import (
	"errors"
	"io"
)

// Agent is for a guest, which is a Linux.
func Agent(io.Writer, []string) error { return errors.New("tasks of a guest need Linux") }
