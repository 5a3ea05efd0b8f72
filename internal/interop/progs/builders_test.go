package progs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/interop"
)

// TestBuilders: who builds images with mkfs.btrfs does so with this program in its place.
// systemd-repart holds the lock of the loop device that it has it called on, fills the file system
// through a mount of Linux, and both checkers find nothing.
func TestBuilders(t *testing.T) {
	interop.Linux(t, "systemd-repart")
	dir := t.TempDir()
	bin, tree, defs, img := filepath.Join(dir, "bin"), filepath.Join(dir, "tree"), filepath.Join(dir, "defs"), filepath.Join(dir, "disk.img")
	for _, d := range []string{bin, tree, defs} {
		interop.Must(t, os.Mkdir(d, 0o755))
	}
	interop.Must(t, os.Symlink(interop.Binary(t), filepath.Join(bin, "mkfs.btrfs")))
	interop.Must(t, os.WriteFile(filepath.Join(tree, "motd"), []byte("hello"), 0o644))
	interop.Must(t, os.WriteFile(filepath.Join(defs, "10.conf"),
		[]byte("[Partition]\nType=root\nFormat=btrfs\nLabel=built\nCopyFiles="+tree+":/etc\nSizeMinBytes=300M\n"), 0o644))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	interop.Sh(t, "systemd-repart", "--definitions="+defs, "--empty=create", "--size=500M", "--dry-run=no", "--no-pager", img)
	interop.Btrlab(t, "check", img)
	// 6.19's, and so ours, puts block groups into a tree of their own; Debian's does not.
	if have := interop.Btrlab(t, "info", img); !strings.Contains(have, "built") || !strings.Contains(have, "block-group-tree") {
		t.Errorf("not made by this program:\n%s", have)
	}
	if have := interop.Btrlab(t, "cat", img+":/etc/motd"); have != "hello" {
		t.Errorf("the file has %q", have)
	}
}

// TestProgsOnDevice: on a block device mkfs.btrfs with a tree takes all of it, or what -b says; and
// an identifier of a file system that is mounted is refused.
func TestProgsOnDevice(t *testing.T) {
	interop.Linux(t)
	img, src := interop.Image(t, "device.img"), t.TempDir()
	interop.Must(t, os.WriteFile(filepath.Join(src, "f"), make([]byte, 60<<20), 0o644))
	interop.Sh(t, "truncate", "-s", "300M", img)
	const uuid = "2a7e1ffc-2f8d-4cb8-9a1b-6dd5f4b3a0c5"
	for _, c := range []struct {
		size string
		args []string
	}{{"300.00 MiB", nil}, {"200.00 MiB", []string{"-b", "200M"}}} {
		dev := strings.TrimSpace(interop.Sh(t, "losetup", "-f", "--show", img))
		interop.Btrlab(t, append(append([]string{"mkfs.btrfs", "-f", "-q", "-U", uuid, "-r", src}, c.args...), dev)...)
		if have := interop.Btrlab(t, "info", dev); !strings.Contains(have, c.size) {
			t.Errorf("%q: want %s:\n%s", c.args, c.size, have)
		}
		interop.Sh(t, "losetup", "-d", dev)
		interop.Judged(t, img)
	}
	interop.Mounted(t, img, "", func(string) {
		other := interop.Image(t, "other.img")
		interop.Sh(t, "truncate", "-s", "100M", other)
		if code, out := interop.Try("mkfs.btrfs", "-U", uuid, other); code != 1 || !strings.Contains(out, "mounted") {
			t.Errorf("the identifier of a mounted file system is taken: %s", out)
		}
	})
}

// TestFakeroot: with the save file of fakeroot an image has the owners, modes and devices that
// programs see under fakeroot -i, of names with and without an entry there, by mkfs and by put.
func TestFakeroot(t *testing.T) {
	interop.Linux(t, "fakeroot")
	dir := t.TempDir()
	tree, save := filepath.Join(dir, "tree"), filepath.Join(dir, "save")
	interop.Sh(t, "fakeroot", "-s", save, "sh", "-ec", `mkdir "$1"; cd "$1"; echo x > f; chown 12:34 f; chmod 4755 f; ln f hard; mkdir d; chown -R 5:6 d
mknod null c 1 3; mknod disk b 8 300; mknod big b 259 65537; mkfifo p; chown 7:8 p; ln -s f s; chown -h 9:10 s; echo y > plain; chmod 600 plain; chmod 2775 d; touch d/in; chown 1:4294967294 d/in`, "sh", tree)
	// fakeroot knows nothing of it
	interop.Must(t, os.WriteFile(filepath.Join(tree, "later"), []byte("z"), 0o640))
	const look = `cd "$1" && find . -printf '%p %y %m %U %G ' -exec stat -c '%t %T' {} \; | sort`
	want := interop.Sh(t, "fakeroot", "-i", save, "sh", "-c", look, "sh", tree)
	if !strings.Contains(want, "./disk b 644 0 0 8 12c\n") || strings.Count(want, "\n") != 12 {
		t.Fatalf("fakeroot says:\n%s", want)
	}
	made, put := interop.Image(t, "made.img"), interop.Image(t, "put.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "200M", "--rootdir", tree, "--owner-from", save, made)
	interop.Btrlab(t, "mkfs", "-q", "--size", "200M", put)
	interop.Btrlab(t, "put", "-r", "--owner-from", save, tree+"/.", put+":/")
	for _, img := range []string{made, put} {
		interop.Judged(t, img)
		interop.Mounted(t, img, "", func(mnt string) {
			if have := interop.Sh(t, "sh", "-c", look, "sh", mnt); have != want {
				t.Errorf("%s: have\n%s\nwant\n%s", filepath.Base(img), have, want)
			}
		})
	}
}

// TestCpio: an archive of GNU cpio in each format, from a file and by a pipe, becomes what Linux
// finds in an image of the tar archive of the same tree, and what put --from-cpio makes.
func TestCpio(t *testing.T) {
	interop.Linux(t, "cpio", "tar", "rsync")
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	interop.Tree(t, tree, 41, 60)
	// GNU tar knows no links to pipes.
	interop.Must(t, os.Remove(filepath.Join(tree, "links/pipe")))
	interop.Sh(t, "sh", "-ec", `cd "$1"; mknod null c 1 3; mknod disk b 8 30; mkfifo p; echo x > own; chown 1234:4321 own; chmod 4711 own; mkdir -p in/deep
ln own own2; ln own in/own3; : > e1; ln e1 e2; ln -s own s; touch -h -d @1500000000 s; chmod 2770 in; find . -exec touch -h -d @1600000000 {} +`, "sh", tree)
	archive := filepath.Join(dir, "t.tar")
	interop.Sh(t, "tar", "cf", archive, "-C", tree, ".")
	want := interop.Image(t, "tar.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "300M", "--from-tar", archive, want)
	interop.Mounted(t, want, "", func(tared string) {
		for _, format := range []string{"newc", "crc", "odc"} {
			name := filepath.Join(dir, "t."+format)
			interop.Sh(t, "sh", "-c", `cd "$1" && find . -print0 | cpio --quiet -0 -o -H "$2" > "$3"`, "sh", tree, format, name)
			data, err := os.ReadFile(name)
			interop.Must(t, err)
			for _, way := range []string{"file", "pipe", "put"} {
				img := interop.Image(t, format+way+".img")
				switch way {
				case "file":
					interop.Btrlab(t, "mkfs", "-q", "--size", "300M", "--from-cpio", name, img)
				case "pipe":
					interop.BtrlabIn(t, string(data), "mkfs", "-q", "--size", "300M", "--from-cpio", "-", img)
				default:
					interop.Btrlab(t, "mkfs", "-q", "--size", "300M", img)
					interop.Btrlab(t, "put", "--from-cpio", name, img+":/")
				}
				interop.Judged(t, img)
				interop.Mounted(t, img, "ro", func(mnt string) {
					if diff := interop.Sh(t, "rsync", "-n", "-aHAXc", "--itemize-changes", "--delete", mnt+"/", tared+"/"); diff != "" {
						t.Errorf("%s by %s, rsync finds other:\n%s", format, way, diff)
					}
				})
				interop.Must(t, os.Remove(img))
			}
		}
	})
}

// TestDeviceTable: a table of genext2fs over a folder makes the same names, types, modes, owners
// and device numbers as genext2fs makes of it, as Linux mounts both.
func TestDeviceTable(t *testing.T) {
	interop.Linux(t, "genext2fs")
	dir := t.TempDir()
	tree, table, ext := filepath.Join(dir, "tree"), filepath.Join(dir, "table"), interop.Image(t, "table.ext2")
	interop.Sh(t, "sh", "-ec", `mkdir -p "$1/etc" "$1/bin"; echo x > "$1/etc/passwd"; echo y > "$1/bin/su"`, "sh", tree)
	interop.Must(t, os.WriteFile(table, []byte(`# name type mode uid gid major minor start inc count
/dev      d    755  0    0    -    -    -    -    -
/dev/mem  c    640  0    0    1    1    0    0    -
/dev/tty  c    666  0    0    5    0    0    0    -
/dev/tty  c    666  0    0    4    0    0    1    6
/dev/loop b    640  0    0    7    0    0    1    2
/dev/hda  b    640  0    0    3    0    0    0    -
/dev/hda  b    640  0    0    3    1    1    1    16
/dev/x    c    600  1    2    10   10   1    2    4
/dev/y    c    600  3    4    10   10   2    1    4
/dev/z    c    600  5    6    10   0    0    3    3
/dev/p    p    600  5    6    -    -    -    -    -
/dev/log  s    666  0    0    -    -    -    -    -
/etc/passwd f  600  7    8    -    -    -    -    -
/etc/new  f    640  9    10   -    -    -    -    -
/bin/su   f    4755 0    0    -    -    -    -    -
/etc      d    2750 1    2    -    -    -    -    -
`), 0o644))
	img := interop.Image(t, "table.img")
	interop.Sh(t, "genext2fs", "-b", "8192", "-d", tree, "-D", table, ext)
	interop.Btrlab(t, "mkfs", "-q", "--size", "200M", "--rootdir", tree, "--device-table", table, img)
	interop.Judged(t, img)
	look := func(mnt string) string {
		return interop.Sh(t, "sh", "-c", `cd "$1" && find . -mindepth 1 -path ./lost+found -prune -o -printf '%p %y %m %U %G ' -exec stat -c '%t:%T' {} \; | sort`, "sh", mnt)
	}
	mnt := filepath.Join(dir, "mnt")
	interop.Must(t, os.Mkdir(mnt, 0o755))
	interop.Sh(t, "mount", "-o", "loop,ro", ext, mnt)
	want := func() string {
		defer interop.Sh(t, "umount", mnt)
		return look(mnt)
	}()
	if strings.Count(want, "\n") < 40 {
		t.Fatalf("genext2fs has made\n%s", want)
	}
	interop.Mounted(t, img, "ro", func(mnt string) {
		if have := look(mnt); have != want {
			t.Errorf("have\n%s\nwant\n%s", have, want)
		}
	})
}
