package app

import (
	_ "embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"btrlab/internal/study/timeline"
)

// onward is a command of Delve that goes to the next step of a schedule.
//
//go:embed onward.star
var onward []byte

// errNoDelve says how to get it.
var errNoDelve = errors.New("dlv is not installed: go install github.com/go-delve/delve/cmd/dlv@latest")

// FindDelve finds dlv in PATH, or where go install puts it.
func FindDelve() (string, error) {
	if path, err := exec.LookPath("dlv"); err == nil {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", errNoDelve
	}
	path, err := exec.LookPath(filepath.Join(home, "go", "bin", "dlv"))
	if err != nil {
		return "", errNoDelve
	}
	return path, nil
}

// Delve runs a program that stops at the steps of a schedule under dlv, at the first one, with the
// terminal of this program, whose Ctrl-C is dlv's. It returns when dlv ends.
func Delve(dlv, bin string, args ...string) (err error) {
	dir, err := os.MkdirTemp("", "btrlab-debug")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	script, first := filepath.Join(dir, "onward.star"), filepath.Join(dir, "init")
	if err := errors.Join(os.WriteFile(script, onward, 0o644), os.WriteFile(first, []byte("source "+script+"\nonward\n"), 0o644)); err != nil {
		return err
	}
	all := []string{"exec", bin, "--init", first}
	if !IsTerminal(os.Stdin) {
		all = append(all, "--allow-non-terminal-interactive")
	}
	c := exec.Command(dlv, append(append(all, "--"), args...)...)
	c.Env = append(os.Environ(), timeline.DebuggerEnv+"=1")
	if !IsTerminal(os.Stdout) {
		c.Env = append(c.Env, "TERM=dumb") // no colours
	}
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	return c.Run()
}
