//go:build linux

package blockdev

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestOpenPipe: a pipe without a writer is refused at once, in place of a wait for one.
func TestOpenPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := Open(path, ReadOnly)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "a named pipe") {
			t.Errorf("have %v want an error about a named pipe", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the open of a pipe waits for a writer")
	}
}
