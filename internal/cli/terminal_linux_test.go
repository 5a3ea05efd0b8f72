package cli

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"btrlab/internal/cli/app"
)

// openTerminal is a pseudoterminal: what is written to tty can be read from the other end, lines
// end in \r\n.
func openTerminal(t *testing.T) (tty *os.File, lines *bufio.Reader) {
	t.Helper()
	m, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudoterminal: %v", err)
	}
	t.Cleanup(func() { m.Close() })
	if err := unix.IoctlSetPointerInt(int(m.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(m.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudoterminal: %v", err)
	}
	t.Cleanup(func() { tty.Close() })
	return tty, bufio.NewReader(m)
}

// TestControlCharacters: names, links and labels of an image with control characters reach a
// terminal escaped, and a pipe as they are, as with ls.
func TestControlCharacters(t *testing.T) {
	img := filepath.Join(t.TempDir(), "a.img")
	const bad, escaped = "a\x1b[2Jb\nc\x07\xff", `a\x1b[2Jb\nc\a\xff`
	verb(t, 0, "mkfs", "-q", "--size", "128M", "--label", "l\x1b[1m", img)
	verb(t, 0, "touch", img+":/"+bad)
	verb(t, 0, "ln", "-s", "/to\x1b]0;x\x07", img+":/link")
	verb(t, 0, "subvolume", "create", img+":/s\x1bv")
	verb(t, 0, "quota", "enable", img)
	for _, c := range []struct {
		args []string
		code int
		want string // a line has it
	}{
		{[]string{"ls", img}, 0, escaped},
		{[]string{"ls", "-l", img}, 0, escaped},
		{[]string{"ls", "-l", img}, 0, `link -> /to\x1b]0;x\a`},
		{[]string{"ls", "-R", img}, 0, "/" + escaped},
		{[]string{"stat", img + ":/" + bad}, 0, "file: /" + escaped},
		{[]string{"stat", img + ":/link"}, 0, `file: /link -> /to\x1b]0;x\a`},
		{[]string{"subvolume", "list", img}, 0, `s\x1bv, subvolume`},
		{[]string{"quota", "show", img}, 0, `s\x1bv`},
		{[]string{"info", img}, 0, `l\x1b[1m`},
		{[]string{"dump", "super", img}, 0, `l\x1b[1m`},
		{[]string{"dump", "tree", "fs", img}, 0, `name: link`},
		{[]string{"cat", img + ":/no\x1b[2J"}, app.ExitFailed, `/no\x1b[2J`},
		{[]string{"rm", img + ":/no\x1b[2J", img + ":/nor\x07"}, app.ExitFailed, `/nor\a`},
	} {
		tty, lines := openTerminal(t)
		go func() {
			if code := Main(c.args, strings.NewReader(""), tty, tty); code != c.code {
				t.Errorf("%q: exit code %d, want %d", c.args, code, c.code)
			}
			fmt.Fprint(tty, "\nend\n")
		}()
		var text strings.Builder
		for {
			l, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if l = strings.TrimSuffix(l, "\r\n"); l == "end" {
				break
			}
			text.WriteString(l + "\n")
		}
		if have := text.String(); !strings.Contains(have, c.want) || strings.ContainsAny(have, "\x1b\x07") || !utf8.ValidString(have) {
			t.Errorf("%q on a terminal: have %q want a line with %s", c.args, have, c.want)
		}
	}
	if have := verb(t, 0, "ls", img); !strings.Contains(have, bad+"\n") {
		t.Errorf("to a pipe: have %q want one with %q", have, bad)
	}
}
