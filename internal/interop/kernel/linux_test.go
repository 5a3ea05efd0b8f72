package kernel

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/cli"
	"btrlab/internal/interop"
	"btrlab/internal/testing/need"
)

func TestMain(m *testing.M) { interop.Main(m, removeGuestProgram) }

// TestMountedMeanwhile: Linux mounts the image while btrlab has it open for writing: no lock keeps
// a loop device away. The commit is refused with one line, and the image is as Linux left it.
func TestMountedMeanwhile(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	for _, options := range interop.Pick([]string{"ro", "rw"}, []string{"rw"}) {
		t.Run(options, func(t *testing.T) {
			img := interop.Image(t, "img")
			interop.Btrlab(t, "mkfs", "-q", "--size", "256M", img)
			in, feed := io.Pipe()
			var errw bytes.Buffer
			code := make(chan int)
			go func() { code <- cli.Main([]string{"put", "-", img + ":/f"}, in, io.Discard, &errw) }()
			chunk := interop.NewFiller(1).Bytes(1 << 20)
			// Once the second chunk is taken, the first is in the file system's memory, so the
			// image is open.
			for range 2 {
				_, err := feed.Write(chunk)
				interop.Must(t, err)
			}
			interop.Mounted(t, img, options, func(dir string) {
				if options == "rw" {
					interop.Write(t, filepath.Join(dir, "linux"), chunk)
					interop.Sh(t, "sync", "-f", dir)
				}
				before := interop.Sh(t, "sha256sum", img)
				for range 3 {
					_, err := feed.Write(chunk)
					interop.Must(t, err)
				}
				interop.Must(t, feed.Close())
				if have := <-code; have != 1 {
					t.Errorf("exit code: have %d want 1", have)
				}
				if have := errw.String(); strings.Count(have, "\n") != 1 || !strings.Contains(have, "mounted at "+dir) {
					t.Errorf("have %q, want one line with the place of the mount", have)
				}
				if after := interop.Sh(t, "sha256sum", img); after != before {
					t.Errorf("the image has changed")
				}
			})
			interop.Judged(t, img)
			interop.Mounted(t, img, "ro", func(dir string) {
				if _, err := os.Stat(filepath.Join(dir, "f")); err == nil {
					t.Error("the refused file is in the image")
				}
				if options == "rw" {
					have, err := os.ReadFile(filepath.Join(dir, "linux"))
					interop.Must(t, err)
					if !bytes.Equal(have, chunk) {
						t.Error("the file that Linux wrote has changed")
					}
				}
			})
		})
	}
}
