//go:build !js

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// hangup adds SIGHUP, which comes when the terminal is closed, to signals. Under nohup it stays
// ignored.
func hangup(signals ...os.Signal) []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return signals
	}
	return append(signals, syscall.SIGHUP)
}

func isHangup(s os.Signal) bool { return s == syscall.SIGHUP }
