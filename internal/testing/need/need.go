// Package need is what the tests in which Linux, btrfs-progs or a browser is the judge ask first:
// whether the judge is there.
//
// Without it they skip and say so, unless BTRLAB_INTEROP=1, under which a missing tool is a
// failure. BTRLAB_INTEROP=0 leaves them all out, for a run of the other tests after one with
// BTRLAB_INTEROP=1.
package need

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Root and Loop are needs that are no tools.
const (
	Root = "root"
	Loop = "loop devices"
)

// Forced reports whether a test may not skip, and takes its full size: make interop.
func Forced() bool { return os.Getenv("BTRLAB_INTEROP") == "1" }

// LeftOut skips the test under BTRLAB_INTEROP=0.
func LeftOut(t testing.TB) {
	t.Helper()
	if os.Getenv("BTRLAB_INTEROP") == "0" {
		t.Skip("SKIPPED: BTRLAB_INTEROP=0 leaves out the tests with another judge")
	}
}

// All skips the test, loudly, when one of tools (host commands, Root or Loop) is missing, and fails
// it when it is forced.
func All(t testing.TB, tools ...string) {
	t.Helper()
	LeftOut(t)
	var missing []string
	for _, tool := range tools {
		if !has(tool) {
			missing = append(missing, tool)
		}
	}
	if len(missing) > 0 {
		Without(t, strings.Join(missing, ", no "))
	}
}

// Without skips the test, loudly, for want of what, and fails it when it is forced.
func Without(t testing.TB, what string) {
	t.Helper()
	if Forced() {
		t.Fatalf("BTRLAB_INTEROP=1, and there is no %s", what)
	}
	t.Skipf("SKIPPED, NOT JUDGED BY ANOTHER PROGRAM: no %s", what)
}

// Browser is a program that shows pages, Chromium or what goes by another of its names.
func Browser(t testing.TB) string {
	t.Helper()
	LeftOut(t)
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			return p
		}
	}
	Without(t, "chromium")
	return ""
}

func has(tool string) bool {
	switch tool {
	case Root:
		return os.Geteuid() == 0
	case Loop:
		_, err := os.Stat("/dev/loop-control")
		return err == nil
	}
	_, err := exec.LookPath(tool)
	return err == nil
}
