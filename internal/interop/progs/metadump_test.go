package progs

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/interop"
	"btrlab/internal/testing/need"
)

// imageTools skips the test without btrfs-image.
func imageTools(t *testing.T) {
	t.Helper()
	need.All(t, "btrfs-image", "btrfs")
}

// treesOf is what btrfs inspect-internal prints of all trees. What it says of devices of others,
// which come and go, is left out.
func treesOf(t *testing.T, img string) string {
	t.Helper()
	out, err := exec.Command("btrfs", "inspect-internal", "dump-tree", img).Output()
	interop.Must(t, err)
	return string(out)
}

// metadataClean asks both checkers about an image without file data.
func metadataClean(t *testing.T, what, img string) {
	t.Helper()
	if out := interop.Btrlab(t, "check", img); !strings.Contains(out, "without file data") {
		t.Errorf("%s: check does not say that there is no data:\n%s", what, out)
	}
	out, err := exec.Command("btrfs", "check", "--readonly", img).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "no error found") {
		t.Errorf("%s: btrfs check: %v\n%s", what, err, interop.Tail(out))
	}
}

// TestDumpBothWays: of an image of mkfs.btrfs and one of ours, btrfs-image restores our dumps and
// we restore those of btrfs-image, with the trees that there were.
func TestDumpBothWays(t *testing.T) {
	imageTools(t)
	theirs, _ := made(t)
	ours := filepath.Join(t.TempDir(), "ours")
	interop.Btrlab(t, "mkfs", "--rootdir", filepath.Join(filepath.Dir(theirs), "tree"), ours)
	for _, img := range []string{theirs, ours} {
		dump, restored := img+".dump", img+".restored"
		want := treesOf(t, img)
		for _, options := range [][]string{{"-c0"}, {"-c9"}, {"-w"}, {"-w", "-c1"}} {
			interop.Btrlab(t, append(append([]string{"image", "dump"}, options...), img, dump)...)
			interop.Sh(t, "btrfs-image", "-r", dump, restored)
			metadataClean(t, fmt.Sprint("our dump ", options), restored)
			if treesOf(t, restored) != want {
				t.Errorf("our dump %v, restored by btrfs-image, has other trees", options)
			}
			interop.Sh(t, "btrfs-image", append(options, img, dump)...)
			interop.Btrlab(t, "image", "restore", "--force", dump, restored)
			metadataClean(t, fmt.Sprint("dump of btrfs-image ", options), restored)
			if treesOf(t, restored) != want {
				t.Errorf("dump %v of btrfs-image, restored here, has other trees", options)
			}
		}
		interop.Btrlab(t, "btrfs-image", "-ss", "-c", "9", img, dump)
		interop.Sh(t, "btrfs-image", "-r", dump, restored)
		metadataClean(t, "our dump -ss", restored)
		if out := treesOf(t, restored); strings.Contains(out, "name: large") || !strings.Contains(treesOf(t, img), "name: large") {
			t.Error("our dump -ss has names of files")
		}
		for _, s := range []string{"-s", "-ss"} {
			interop.Sh(t, "btrfs-image", s, img, dump)
			interop.Sh(t, "btrfs-image", "-r", dump, restored)
			want := treesOf(t, restored)
			interop.Btrlab(t, "image", "restore", "--force", dump, restored)
			if treesOf(t, restored) != want {
				t.Errorf("dump %s of btrfs-image, restored here, has other trees than restored there", s)
			}
		}
	}
}

// TestDumpChecksums: of a file system with another checksum btrfs-image writes a dump in which the
// blocks have a crc32c, which it cannot restore. We can.
func TestDumpChecksums(t *testing.T) {
	imageTools(t)
	img, _ := made(t, "--csum", "sha256")
	dump, restored := img+".dump", img+".restored"
	interop.Sh(t, "btrfs-image", img, dump)
	interop.Btrlab(t, "image", "restore", dump, restored)
	metadataClean(t, "dump of btrfs-image", restored)
	interop.Btrlab(t, "image", "dump", img, dump)
	interop.Btrlab(t, "image", "restore", "--force", dump, restored)
	metadataClean(t, "our dump", restored)
}

// TestDumpDevices: of a file system of several devices, dumps of both programs are restored to one
// device and to as many as there were. Btrfs-image itself restores some to one device that btrfs
// check does not take, and fails for others.
func TestDumpDevices(t *testing.T) {
	interop.Linux(t, "btrfs-image")
	for _, p := range interop.Pick(profiles, profiles[5:6]) {
		t.Run(fmt.Sprintf("%d %s %s", p.n, p.data, p.metadata), func(t *testing.T) {
			a := newArray(t, p.n)
			a.attachedTo(t, func(loops []string) {
				args := append([]string{"-q", "-d", p.data, "-m", p.metadata}, loops...)
				if out, err := exec.Command("mkfs.btrfs", args...).CombinedOutput(); err != nil {
					need.Without(t, fmt.Sprintf("profile %s in mkfs.btrfs: %s", p.data, interop.Tail(out)))
				}
			})
			tree := filepath.Join(t.TempDir(), "tree")
			interop.Tree(t, tree, 9, 100)
			a.mounted(t, func(dir string) { interop.Sh(t, "cp", "-a", tree+"/.", dir) })
			dir := t.TempDir()
			theirs, ours := filepath.Join(dir, "theirs"), filepath.Join(dir, "ours")
			var want string
			a.scanned(t, func(first string) {
				want = treesOf(t, first)
				interop.Sh(t, "btrfs-image", "-c9", first, theirs)
			})
			interop.Btrlab(t, append(append([]string{"image", "dump"}, a...), ours)...)
			for _, dump := range []string{theirs, ours} {
				one := filepath.Join(dir, "one")
				interop.Btrlab(t, "image", "restore", "--force", dump, one)
				metadataClean(t, dump, one)
				again := newArray(t, p.n)
				interop.Btrlab(t, append([]string{"image", "restore", dump}, again...)...)
				if out := interop.Btrlab(t, again.verb("", "check")...); !strings.Contains(out, "without file data") {
					t.Errorf("check does not say that there is no data:\n%s", out)
				}
				again.scanned(t, func(first string) {
					if line := firstOther(treesOf(t, first), want); line != "" {
						t.Errorf("%s: other trees: %s", dump, line)
					}
					interop.Sh(t, "btrfs", "check", "--readonly", first)
				})
			}
		})
	}
}

// firstOther is the first line in which two texts differ, "" if none does.
func firstOther(have, want string) string {
	h, w := strings.Split(have, "\n"), strings.Split(want, "\n")
	for i := range max(len(h), len(w)) {
		if a, b := append(h, make([]string, len(w))...)[i], append(w, make([]string, len(h))...)[i]; a != b {
			return fmt.Sprintf("line %d, have %q want %q", i+1, a, b)
		}
	}
	return ""
}

// scanned runs f with the name of the first device while Linux knows all of them.
func (a array) scanned(t *testing.T, f func(first string)) {
	t.Helper()
	a.attachedTo(t, func(loops []string) {
		t.Helper()
		interop.Sh(t, "btrfs", append([]string{"device", "scan"}, loops...)...)
		defer func() { _ = exec.Command("btrfs", append([]string{"device", "scan", "--forget"}, loops...)...).Run() }()
		f(loops[0])
	})
}

// sameDump wants our receive --dump of a stream to be that of btrfs receive. An older btrfs-progs
// has commas in one command, and does not escape values of attributes.
func sameDump(t *testing.T, stream string) (lines int) {
	t.Helper()
	want := strings.Split(interop.Sh(t, "btrfs", "receive", "--dump", "-f", stream), "\n")
	have := strings.Split(interop.Btrlab(t, "receive", "--dump", "-f", stream), "\n")
	for i, line := range want {
		if strings.HasPrefix(line, "encoded_write") {
			line = strings.ReplaceAll(line, ", ", " ")
		}
		if i >= len(have) || have[i] != line {
			t.Errorf("%s: line %d, have %q want %q", filepath.Base(stream), i+1, append(have, "")[min(i, len(have))], line)
			break
		}
	}
	return len(want)
}

// TestReceiveDump: the commands of streams of Linux and of ours are printed as btrfs receive --dump
// does.
func TestReceiveDump(t *testing.T) {
	need.All(t, "btrfs")
	for _, name := range []string{"full-v1", "inc-v1", "full-v2", "inc-v2"} {
		if n := sameDump(t, filepath.Join("../../sendstream/testdata", name)); n < 30 {
			t.Errorf("%s: %d lines", name, n)
		}
	}
	img, _ := made(t)
	host := filepath.Join(filepath.Dir(img), "tree", "small")
	interop.Btrlab(t, "subvolume", "create", img+":/s")
	for _, name := range []string{"with space", "tab\tbackslash\\", "grün", "a-name-that-is-longer-than-the-column-of-paths"} {
		interop.Btrlab(t, "put", host, img+":/s/"+name)
	}
	interop.Btrlab(t, "setxattr", "user.x", "value", img+":/s/with space")
	interop.Btrlab(t, "ln", "-s", "to where", img+":/s/link")
	interop.Btrlab(t, "mknod", img+":/s/null", "c", "1", "3")
	interop.Btrlab(t, "snapshot", "-r", img+":/s", img+":/s1")
	interop.Btrlab(t, "mv", img+":/s/link", img+":/s/moved to")
	interop.Btrlab(t, "rm", img+":/s/null")
	interop.Btrlab(t, "reflink", img+":/s/grün", img+":/s/same")
	interop.Btrlab(t, "snapshot", "-r", img+":/s", img+":/s2")
	for proto := range 2 {
		for _, more := range [][]string{{img + ":/s1"}, {"-p", "/s1", img + ":/s2"}} {
			stream := filepath.Join(t.TempDir(), "stream")
			interop.Btrlab(t, append([]string{"send", "--proto", fmt.Sprint(proto + 1), "-f", stream}, more...)...)
			sameDump(t, stream)
		}
	}
}

// TestForceReadOnly: property set -f makes of a received subvolume what btrfs property set -f does:
// the same root item but for generations, times and identifiers of the subvolume.
func TestForceReadOnly(t *testing.T) {
	interop.Linux(t)
	var items []string
	for _, linux := range []bool{true, false} {
		img, _ := made(t)
		interop.Btrlab(t, "receive", "-f", "../../sendstream/testdata/full-v1", img)
		if was := receivedFields(t, img); !strings.Contains(was, "RDONLY") || !strings.Contains(was, "received entry") {
			t.Errorf("before, have:\n%s", was)
		}
		if linux {
			interop.Mounted(t, img, "", func(dir string) {
				if out, err := exec.Command("btrfs", "property", "set", dir+"/s1", "ro", "false").CombinedOutput(); err == nil {
					t.Errorf("Linux: without -f, have no error and %s", out)
				}
				interop.Sh(t, "btrfs", "property", "set", "-f", dir+"/s1", "ro", "false")
			})
		} else {
			refusedBy(t, "it was received", "property", "set", img+":/s1", "ro", "false")
			interop.Btrlab(t, "property", "set", "-f", img+":/s1", "ro", "false")
		}
		interop.Judged(t, img)
		interop.Btrlab(t, "mkdir", img+":/s1/new")
		items = append(items, receivedFields(t, img))
	}
	if items[0] != items[1] {
		t.Errorf("of Linux:\n%sof ours:\n%s", items[0], items[1])
	}
}

// receivedFields are the flags and the identifiers of the sender in the root item of the first
// subvolume, and the entries for received ones in the tree of identifiers.
func receivedFields(t *testing.T, img string) string {
	t.Helper()
	var b strings.Builder
	inItem := false
	for _, line := range strings.Split(treesOf(t, img), "\n") {
		if strings.Contains(line, " key (") {
			inItem = strings.Contains(line, "key (256 ROOT_ITEM ")
		}
		line = strings.TrimSpace(line)
		switch {
		case inItem && (strings.HasPrefix(line, "received_uuid") || strings.HasPrefix(line, "stransid") || strings.HasPrefix(line, "stime") || strings.Contains(line, "refs ")):
			b.WriteString(line + "\n")
		case strings.Contains(line, "UUID_KEY_RECEIVED_SUBVOL"):
			b.WriteString("received entry\n")
		}
	}
	return b.String()
}
