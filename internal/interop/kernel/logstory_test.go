package kernel

import (
	"bytes"
	"compress/gzip"
	enc "encoding/binary"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"btrlab/internal/interop"
)

var logUpdate = flag.Bool("log.update", false, "TestReplayStories writes the stories' images and facts into testdata of package fs")

// The stories of logs that are tests without Linux, too: NAME.txt has what is done, a line for each
// operation, and after a line of dashes what Linux shows when it has replayed the log.
// NAME.blocks.gz is the image before that.
const logStories = "../../data/treelog/testdata/log"

// TestReplayStories: Linux does what each story says and replays the log: everything must be as the
// story has it.
func TestReplayStories(t *testing.T) {
	interop.Linux(t)
	stories, err := filepath.Glob(filepath.Join(logStories, "*.txt"))
	interop.Must(t, err)
	if len(stories) == 0 {
		t.Fatal("no stories")
	}
	for _, path := range stories {
		name := strings.TrimSuffix(filepath.Base(path), ".txt")
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile(path)
			interop.Must(t, err)
			ops, want, _ := strings.Cut(string(b), "----\n")
			img := interop.Image(t, "story.img")
			interop.Sh(t, "truncate", "-s", "192M", img)
			args := []string{"-q", "-m", "single"}
			lines := strings.Split(strings.TrimSpace(ops), "\n")
			for _, l := range lines {
				if rest, ok := strings.CutPrefix(l, "mkfs "); ok {
					args = append(args, strings.Fields(rest)...)
				}
			}
			interop.Sh(t, "mkfs.btrfs", append(args, img)...)
			crash := img + ".crash"
			interop.Mounted(t, img, "commit=300,noatime", func(dir string) {
				s := &teller{t: t, dir: dir, held: map[string]*os.File{}}
				for _, l := range lines {
					if !strings.HasPrefix(l, "#") && !strings.HasPrefix(l, "mkfs ") {
						s.do(strings.Fields(l))
					}
				}
				interop.Sh(t, "cp", "--sparse=always", img, crash)
				for _, h := range s.held {
					h.Close()
				}
			})
			if !hasLog(t, crash) {
				t.Fatal("the story leaves no log")
			}
			if *logUpdate {
				interop.Must(t, os.WriteFile(strings.TrimSuffix(path, ".txt")+".blocks.gz", packBlocks(t, crash), 0o644))
			}
			theirs := crash + ".linux"
			interop.Sh(t, "cp", "--sparse=always", crash, theirs)
			shown := func(img string) (text string) {
				interop.Mounted(t, img, "noatime", func(dir string) { text = strings.Join(facts(t, dir, false), "\n") + "\n" })
				return text
			}
			linuxes := shown(theirs)
			if *logUpdate {
				want = linuxes
				interop.Must(t, os.WriteFile(path, []byte(ops+"----\n"+want), 0o644))
			}
			if linuxes != want {
				t.Errorf("Linux shows\n%swant\n%s", linuxes, want)
			}
			replay(t, crash)
			interop.Judged(t, crash)
			if ours := shown(crash); ours != want {
				t.Errorf("after our replay Linux shows\n%swant\n%s", ours, want)
			}
		})
	}
}

// teller does the operations of a story below dir.
type teller struct {
	t    *testing.T
	dir  string
	held map[string]*os.File
	n    int
}

func (s *teller) do(w []string) {
	s.t.Helper()
	s.n++
	num := func(i int) int64 {
		v, err := strconv.ParseInt(w[i], 10, 64)
		interop.Must(s.t, err)
		return v
	}
	at := func(i int) string { return filepath.Join(s.dir, w[i]) }
	fill := func(n int64) []byte { return bytes.Repeat([]byte{byte('a' + s.n%26)}, int(n)) }
	file := func(do func(h *os.File) error) {
		s.t.Helper()
		h, err := os.OpenFile(at(1), os.O_RDWR, 0)
		if err != nil { // a directory
			h, err = os.Open(at(1))
		}
		interop.Must(s.t, err)
		interop.Must(s.t, do(h))
		interop.Must(s.t, h.Close())
	}
	falloc := func(mode uint32) {
		s.t.Helper()
		file(func(h *os.File) error { return unix.Fallocate(int(h.Fd()), mode, num(2), num(3)) })
	}
	switch w[0] {
	case "create":
		interop.Write(s.t, at(1), fill(num(2)))
	case "write":
		file(func(h *os.File) error { _, err := h.WriteAt(fill(num(3)), num(2)); return err })
	case "writes": // of a block each, with gaps
		for i := range num(2) {
			file(func(h *os.File) error { _, err := h.WriteAt(fill(4096), i*num(3)); return err })
		}
	case "truncate":
		interop.Must(s.t, os.Truncate(at(1), num(2)))
	case "punch":
		falloc(unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE)
	case "falloc-keep":
		falloc(unix.FALLOC_FL_KEEP_SIZE)
	case "mkdir":
		interop.Must(s.t, os.Mkdir(at(1), 0o755))
	case "rmdir", "unlink":
		interop.Must(s.t, os.Remove(at(1)))
	case "rename":
		interop.Must(s.t, os.Rename(at(1), at(2)))
	case "link":
		interop.Must(s.t, os.Link(at(1), at(2)))
	case "links":
		for i := range num(3) {
			interop.Must(s.t, os.Link(at(1), fmt.Sprint(at(2), i)))
		}
	case "symlink":
		interop.Must(s.t, os.Symlink(w[2], at(1)))
	case "chattr":
		interop.Sh(s.t, "chattr", w[2], at(1))
	case "setxattr":
		interop.Must(s.t, unix.Setxattr(at(1), w[2], fill(num(3)), 0))
	case "removexattr":
		interop.Must(s.t, unix.Removexattr(at(1), w[2]))
	case "subvol":
		interop.Sh(s.t, "btrfs", "subvolume", "create", at(1))
	case "hold":
		h, err := os.OpenFile(at(1), os.O_RDWR, 0)
		interop.Must(s.t, err)
		s.held[w[1]] = h
	case "fsync-held":
		interop.Must(s.t, s.held[w[1]].Sync())
	case "flush":
		const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
		file(func(h *os.File) error { return unix.SyncFileRange(int(h.Fd()), 0, 0, all) })
	case "fsync":
		file((*os.File).Sync)
	case "sync":
		interop.Must(s.t, exec.Command("sync", "-f", s.dir).Run())
	default:
		s.t.Fatalf("bad operation %q", w)
	}
}

// packBlocks is the form of an image that fstest.Image reads.
func packBlocks(t *testing.T, img string) []byte {
	t.Helper()
	b, err := os.ReadFile(img)
	interop.Must(t, err)
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	interop.Must(t, err)
	zero := make([]byte, 4096)
	var word [8]byte
	for off := 0; off < len(b); off += len(zero) {
		if bytes.Equal(b[off:off+len(zero)], zero) {
			continue
		}
		enc.LittleEndian.PutUint64(word[:], uint64(off))
		z.Write(word[:])
		z.Write(b[off : off+len(zero)])
	}
	enc.LittleEndian.PutUint64(word[:], uint64(len(b)))
	z.Write(word[:])
	interop.Must(t, z.Close())
	return out.Bytes()
}
