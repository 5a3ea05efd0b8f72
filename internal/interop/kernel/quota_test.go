package kernel

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"btrlab/internal/interop"
	"btrlab/internal/testing/need"
)

// theirQgroups reads the table of btrfs qgroup show for a mounted file system: id, referenced,
// exclusive and the limits of each.
func theirQgroups(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	for _, line := range strings.Split(interop.Sh(t, "btrfs", "qgroup", "show", "--raw", "--sync", "-re", dir), "\n")[2:] {
		if f := strings.Fields(line); len(f) >= 5 {
			list = append(list, strings.Join(f[:5], " "))
		}
	}
	sort.Strings(list)
	return list
}

// ourQgroups is the same by btrlab quota show.
func ourQgroups(t *testing.T, img string) []string {
	t.Helper()
	var r struct {
		On, Inconsistent bool
		Qgroups          []struct {
			Qgroupid              string
			Referenced, Exclusive uint64
			MaxReferenced         *uint64 `json:"max_referenced"`
			MaxExclusive          *uint64 `json:"max_exclusive"`
		}
	}
	interop.Must(t, json.Unmarshal([]byte(interop.Btrlab(t, "quota", "show", "--json", img)), &r))
	if !r.On || r.Inconsistent {
		t.Fatalf("quotas on %v, inconsistent %v", r.On, r.Inconsistent)
	}
	most := func(n *uint64) string {
		if n == nil {
			return "none"
		}
		return fmt.Sprint(*n)
	}
	var list []string
	for _, g := range r.Qgroups {
		list = append(list, fmt.Sprintf("%s %d %d %s %s", g.Qgroupid, g.Referenced, g.Exclusive, most(g.MaxReferenced), most(g.MaxExclusive)))
	}
	sort.Strings(list)
	return list
}

// sameQgroups wants both sides to show the same, and both checkers to find it right. A mount of
// Linux begins no rescan: the counts are those of the last commit.
func sameQgroups(t *testing.T, img string) {
	t.Helper()
	interop.Judged(t, img)
	if out := interop.Sh(t, "btrfs", "check", "--qgroup-report", "--readonly", img); strings.Contains(out, "are different") {
		t.Fatalf("btrfs check --qgroup-report:\n%s", interop.Tail([]byte(out)))
	}
	ours := strings.Join(ourQgroups(t, img), "\n")
	interop.Mounted(t, img, "", func(dir string) {
		if out := interop.Sh(t, "btrfs", "quota", "rescan", "-s", dir); !strings.Contains(out, "no rescan operation in progress") {
			t.Errorf("a rescan after the mount: %s", out)
		}
		if theirs := strings.Join(theirQgroups(t, dir), "\n"); theirs != ours {
			t.Errorf("have\n%s\nbtrfs qgroup show says\n%s", ours, theirs)
		}
	})
}

// TestQuota: both sides turn quotas on, limit, write and delete in turn, with subvolumes and a
// qgroup above them; the counts that one leaves are those that the other goes on with.
func TestQuota(t *testing.T) {
	interop.Linux(t)
	img, src := interop.Image(t, "quota.img"), t.TempDir()
	f := interop.NewFiller(11)
	for i := range 40 {
		interop.Write(t, filepath.Join(src, fmt.Sprintf("f%d", i)), f.Bytes(1+i*i*700))
	}
	interop.Btrlab(t, "mkfs", "-q", "--size", "512M", img)
	interop.Btrlab(t, "put", "-r", src, img+":/first")
	interop.Btrlab(t, "quota", "enable", img)
	interop.Btrlab(t, "quota", "limit", "100M", img)
	sameQgroups(t, img)
	interop.Mounted(t, img, "", func(dir string) {
		interop.Sh(t, "btrfs", "subvolume", "create", dir+"/sub")
		interop.Sh(t, "btrfs", "qgroup", "create", "1/7", dir)
		interop.Sh(t, "btrfs", "qgroup", "assign", "--no-rescan", "0/256", "1/7", dir)
		interop.Sh(t, "btrfs", "qgroup", "limit", "-e", "50M", "0/256", dir)
		interop.Sh(t, "cp", "-r", src, dir+"/sub/linux")
		interop.Sh(t, "rm", "-r", dir+"/first")
	})
	sameQgroups(t, img)
	interop.Btrlab(t, "put", "-r", src, img+":/sub/second")
	interop.Btrlab(t, "rm", img+":/sub/linux/f20")
	interop.Btrlab(t, "truncate", "--size", "5000", img+":/sub/linux/f39")
	interop.Btrlab(t, "fallocate", "--punch-hole", "--offset", "8k", "--length", "40k", img+":/sub/second/f30")
	interop.Btrlab(t, "quota", "limit", "200M", img+":/sub")
	sameQgroups(t, img)
	interop.Mounted(t, img, "", func(dir string) { interop.Sh(t, "rm", "-r", dir+"/sub/second") })
	sameQgroups(t, img)
	interop.Btrlab(t, "snapshot", img+":/sub", "/snap")
	sameQgroups(t, img)
	interop.Btrlab(t, "put", "-r", src, img+":/snap/third")
	interop.Btrlab(t, "rm", img+":/snap/linux/f30", img+":/sub/linux/f31")
	interop.Btrlab(t, "reflink", img+":/sub/linux/f35", "/snap/shared")
	sameQgroups(t, img)
	interop.Mounted(t, img, "", func(dir string) {
		interop.Sh(t, "rm", dir+"/sub/linux/f35")
		interop.Sh(t, "cp", "-r", src, dir+"/snap/fourth")
	})
	sameQgroups(t, img)
	interop.Btrlab(t, "quota", "rescan", img)
	sameQgroups(t, img)

	// A limit of ours stops Linux, and one of Linux stops us.
	interop.Btrlab(t, "quota", "limit", "60M", img+":/sub")
	interop.Mounted(t, img, "", func(dir string) {
		if out, err := exec.Command("dd", "if=/dev/zero", "of="+dir+"/sub/big", "bs=1M", "count=80").CombinedOutput(); err == nil || !strings.Contains(string(out), "quota exceeded") {
			t.Errorf("Linux at our limit: %v %s", err, out)
		}
		interop.Sh(t, "btrfs", "qgroup", "limit", "40M", dir+"/snap")
	})
	interop.Write(t, filepath.Join(src, "big"), f.Bytes(50<<20))
	if code, errs := interop.Try("put", filepath.Join(src, "big"), img+":/snap/big"); code != 1 || !strings.Contains(errs, "disk quota exceeded") {
		t.Errorf("at Linux's limit: exit code %d, %s", code, errs)
	}
	sameQgroups(t, img)
	interop.Btrlab(t, "quota", "disable", img)
	interop.Judged(t, img)
	interop.Mounted(t, img, "", func(dir string) {
		interop.Sh(t, "btrfs", "quota", "enable", dir)
		interop.Sh(t, "btrfs", "quota", "rescan", "-w", dir)
	})
	sameQgroups(t, img)
}

// TestQuotaDelete: one side begins to delete a subvolume, and is stopped; the other finishes, and
// comes to the right counts. The qgroup goes with the subvolume.
func TestQuotaDelete(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	src := t.TempDir()
	f := interop.NewFiller(12)
	for i := range 1500 {
		interop.Write(t, filepath.Join(src, fmt.Sprintf("f%d", i)), f.Bytes(6000))
	}
	img := interop.Image(t, "quota.img")
	begin := func() {
		interop.Btrlab(t, "mkfs", "-q", "--force", "--size", "512M", img)
		interop.Btrlab(t, "subvolume", "create", img+":/sub")
		interop.Btrlab(t, "put", "-r", src, img+":/sub/d")
		interop.Btrlab(t, "snapshot", img+":/sub", "/snap")
		interop.Btrlab(t, "quota", "enable", img)
		interop.Btrlab(t, "rm", img+":/snap/d/f7", img+":/sub/d/f8")
	}
	left := func(want int) {
		t.Helper()
		sameQgroups(t, img)
		if have := ourQgroups(t, img); len(have) != want {
			t.Errorf("qgroups %v, want %d", have, want)
		}
	}
	for _, gone := range []string{"/sub", "/snap"} {
		begin()
		interop.Mounted(t, img, "", func(dir string) { interop.Sh(t, "btrfs", "subvolume", "delete", "-c", dir+gone) })
		interop.Btrlab(t, "mkdir", img+":/after")
		left(2)
		// after the name is gone, and after parts of the tree are
		for flush := 3; flush <= 6; flush += 3 {
			begin()
			if code, _ := interop.Try("subvolume", "delete", "--fault", fmt.Sprintf("eio:flush:%d+", flush), img+":"+gone); code == 0 {
				t.Logf("%s is gone before flush %d", gone, flush)
			}
			interop.Mounted(t, img, "", func(dir string) { interop.Sh(t, "btrfs", "subvolume", "sync", dir) })
			left(2)
		}
	}
}

// simpleOn lets Linux turn on simple quotas, for which btrfs-progs 6.2 has no word.
func simpleOn(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	interop.Must(t, err)
	defer f.Close()
	const quotaCtl, enableSimple = 0xc0109428, 4 // BTRFS_IOC_QUOTA_CTL
	arg := [2]uint64{enableSimple}
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), quotaCtl, uintptr(unsafe.Pointer(&arg))); e != 0 {
		t.Fatalf("enable simple quotas: %v", e)
	}
}

// sameSimple is sameQgroups of an image that only we check: btrfs check 6.2 refuses simple quotas.
func sameSimple(t *testing.T, img string) {
	t.Helper()
	interop.Btrlab(t, "check", img)
	ours := strings.Join(ourQgroups(t, img), "\n")
	interop.Mounted(t, img, "", func(dir string) {
		interop.Scrubbed(t, dir)
		if theirs := strings.Join(theirQgroups(t, dir), "\n"); theirs != ours {
			t.Errorf("have\n%s\nbtrfs qgroup show says\n%s", ours, theirs)
		}
	})
}

// TestSimpleQuota: both sides turn simple quotas on, and go on with the counts of the other:
// subvolumes that share extents, go, and leave what others refer to; a log of each; limits of both.
func TestSimpleQuota(t *testing.T) {
	interop.Linux(t)
	src := t.TempDir()
	f := interop.NewFiller(13)
	for i := range 40 {
		interop.Write(t, filepath.Join(src, fmt.Sprintf("f%d", i)), f.Bytes(1+i*i*700))
	}
	for _, enable := range []string{"Linux", "btrlab", "mkfs"} {
		t.Run(enable, func(t *testing.T) {
			img := interop.Image(t, "simple.img")
			args := []string{"mkfs", "-q", "--size", "512M", img}
			if enable == "mkfs" {
				args = append(args, "-O", "squota")
			}
			interop.Btrlab(t, args...)
			interop.Btrlab(t, "put", "-r", src, img+":/first")
			interop.Btrlab(t, "subvolume", "create", img+":/sub")
			switch enable {
			case "Linux":
				interop.Mounted(t, img, "", func(dir string) { simpleOn(t, dir) })
			case "btrlab":
				interop.Btrlab(t, "quota", "enable", "--simple", img)
			}
			sameSimple(t, img)
			interop.Btrlab(t, "put", "-r", src, img+":/sub/ours")
			interop.Btrlab(t, "snapshot", img+":/sub", "/snap")
			sameSimple(t, img)
			interop.Mounted(t, img, "", func(dir string) {
				interop.Sh(t, "btrfs", "qgroup", "create", "1/7", dir)
				interop.Sh(t, "btrfs", "qgroup", "assign", "--no-rescan", "0/5", "1/7", dir)
				interop.Sh(t, "cp", "-r", src, dir+"/snap/linux")
				interop.Sh(t, "cp", "--reflink=always", dir+"/sub/ours/f30", dir+"/shared")
				interop.Sh(t, "rm", "-r", dir+"/first", dir+"/sub/ours")
				interop.Sh(t, "btrfs", "subvolume", "snapshot", dir+"/snap", dir+"/again")
			})
			sameSimple(t, img)
			interop.Btrlab(t, "subvolume", "create", img+":/inherits")
			interop.Btrlab(t, "reflink", img+":/snap/linux/f35", "/inherits/shared")
			interop.Btrlab(t, "put", "-r", src, img+":/inherits/d")
			interop.Btrlab(t, "fallocate", "--punch-hole", "--offset", "8k", "--length", "40k", img+":/inherits/d/f30")
			interop.Btrlab(t, "subvolume", "delete", img+":/sub")
			sameSimple(t, img)
			interop.Mounted(t, img, "", func(dir string) {
				interop.Sh(t, "btrfs", "subvolume", "delete", "-c", dir+"/snap")
				interop.Sh(t, "btrfs", "subvolume", "sync", dir)
			})
			sameSimple(t, img)
			interop.Btrlab(t, "subvolume", "delete", img+":/again")
			interop.Btrlab(t, "rm", img+":/shared", img+":/inherits/shared")
			sameSimple(t, img)

			interop.Btrlab(t, "quota", "limit", "60M", img+":/inherits")
			interop.Mounted(t, img, "", func(dir string) {
				if out, err := exec.Command("dd", "if=/dev/zero", "of="+dir+"/inherits/big", "bs=1M", "count=80").CombinedOutput(); err == nil || !strings.Contains(string(out), "quota exceeded") {
					t.Errorf("Linux at our limit: %v %s", err, out)
				}
				interop.Sh(t, "rm", dir+"/inherits/big")
				interop.Sh(t, "btrfs", "qgroup", "limit", "40M", dir+"/inherits")
			})
			big := filepath.Join(t.TempDir(), "big")
			interop.Write(t, big, f.Bytes(50<<20))
			if code, errs := interop.Try("put", big, img+":/inherits/big"); code != 1 || !strings.Contains(errs, "disk quota exceeded") {
				t.Errorf("at Linux's limit: exit code %d, %s", code, errs)
			}
			sameSimple(t, img)
			interop.Btrlab(t, "quota", "disable", img)
			interop.Btrlab(t, "quota", "enable", img)
			sameSimple(t, img)
		})
	}
}
