package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMakefile: a target fails when a step of it fails, also with make 3.81, which knows no
// .SHELLFLAGS; and a Go that is too old is told in one line.
func TestMakefile(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("no make: ", err)
	}
	fake := func(lines string) string {
		name := filepath.Join(t.TempDir(), "go")
		if err := os.WriteFile(name, []byte("#!/bin/sh\n"+lines), 0o755); err != nil {
			t.Fatal(err)
		}
		return name
	}
	answers := func(version, toolchain string) string {
		return fake("case $2 in GOVERSION) echo " + version + " ;; GOTOOLCHAIN) echo " + toolchain + " ;; esac\n")
	}
	fails := fake("echo FAIL; exit 1\n")
	for _, c := range []struct {
		args string
		ok   bool
		says string
	}{
		{"test GO=" + fails, false, "FAIL"},
		{"test GO=" + fails + " .SHELLFLAGS=-c", false, "FAIL"},
		{"test GO=" + fake("exit 0\n") + " .SHELLFLAGS=-c", true, "all tests passed"},
		{"portable GO=" + fails + " .SHELLFLAGS=-c", false, "FAIL"},
		{"toolchain GO=" + answers("go1.22.5", "local") + " .SHELLFLAGS=-c", false, "bad go, have go1.22.5 with GOTOOLCHAIN=local want go1."},
		{"toolchain GO=" + answers("go1.20", "''"), false, "bad go, have go1.20 want go1."},
		{"toolchain GO=" + answers("go1.22.5", "auto"), true, ""},
		{"toolchain GO=" + answers("go1.99", "local"), true, ""},
	} {
		cmd := exec.Command("make", append([]string{"-C", "../..", "--no-print-directory", "ART=" + t.TempDir()}, strings.Fields(c.args)...)...)
		out, err := cmd.CombinedOutput()
		if (err == nil) != c.ok || !strings.Contains(string(out), c.says) {
			t.Errorf("make %s: %v\n%s", c.args, err, out)
		}
	}
}
