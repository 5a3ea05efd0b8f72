//go:build !unix

package sandbox

import (
	"context"
	"os/exec"
	"time"
)

// openNow is nothing here: there are no named pipes among files.
const openNow = 0

// command is a program that is killed when ctx ends. Processes that it started stay.
func command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	return c
}

// bind bounds nothing here.
func bind(time.Duration) {}

var started = time.Now()

// cpuTime is the time since the process began. It stands for processor time, so a limit is stricter
// on a busy machine.
func cpuTime() time.Duration { return time.Since(started) }

// goTool is a run of the go tool on a submission. A process has no limits of the system's here.
func goTool(ctx context.Context, dir string, args ...string) (*exec.Cmd, error) {
	return command(ctx, dir, "go", args...), nil
}

// become has nothing to do here.
func become([]string) {}
