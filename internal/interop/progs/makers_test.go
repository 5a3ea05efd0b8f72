package progs

import (
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/interop"
	"btrlab/internal/testing/need"
)

// variant is how an image is made, and how Linux mounts it to fill it.
type variant struct {
	mkfs, mount string
	readOnly    string // the words with which a verb that writes refuses it; empty: it is written
}

var makersAll = flag.Bool("makers.all", false, "all variants of TestMakers, not every fifth")

// variants are images of mkfs.btrfs and Linux: each default and common option, alone and with
// others.
func variants() (list []variant) {
	add := func(mkfs, mount string) { list = append(list, variant{mkfs: mkfs, mount: mount}) }
	for _, nodes := range []string{"", "-n 4k", "-n 8k", "-n 32k", "-n 64k"} {
		for _, features := range []string{"", "-O ^no-holes", "-O ^skinny-metadata", "-O ^extref", "-R quota", "-R ^free-space-tree", "-O block-group-tree"} {
			add(strings.TrimSpace(nodes+" "+features), "")
		}
	}
	for _, csum := range []string{"xxhash", "sha256", "blake2"} {
		for _, features := range []string{"", "-n 4k", "-O ^no-holes,^skinny-metadata"} {
			add(strings.TrimSpace("--csum "+csum+" "+features), "")
		}
		add("--csum "+csum, "compress=zstd")
	}
	for _, profile := range []string{"-m single", "-d dup", "-m single -d dup", "--mixed", "--mixed -d dup -m dup"} {
		add(profile, "")
	}
	for _, mount := range []string{"compress=zlib", "compress=lzo", "compress=zstd:15", "compress-force=zlib:9", "compress-force=lzo", "nodatacow",
		"nodatasum", "max_inline=0", "max_inline=4095", "space_cache=v1", "space_cache=v2", "nospace_cache", "ssd_spread", "discard", "flushoncommit",
		"noatime,compress=zstd", "nodatasum,max_inline=0"} {
		mkfs := ""
		if strings.Contains(mount, "space_cache=v1") || strings.Contains(mount, "nospace_cache") {
			mkfs = "-R ^free-space-tree"
		}
		add(mkfs, mount)
	}
	for i := range list {
		v := &list[i]
		for _, r := range refusals {
			if v.readOnly == "" && strings.Contains(v.mkfs, r.option) {
				v.readOnly = r.words
			}
		}
	}
	return list
}

// refusals are the features that are read and not written, in the order in which they are found.
var refusals []struct{ option, words string }

// TestMakers: whatever mkfs.btrfs and Linux make is read back as it is; what can be written is
// written, judged, and read back by Linux.
func TestMakers(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	list := variants()
	if len(list) < 60 {
		t.Errorf("%d variants", len(list))
	}
	for i, v := range list {
		if every := interop.Pick(5, 12); !*makersAll && i%every != 0 {
			continue
		}
		t.Run(fmt.Sprintf("mkfs %s, mount %s", v.mkfs, v.mount), func(t *testing.T) {
			img, want := interop.Image(t, "made.img"), t.TempDir()
			interop.Sh(t, "truncate", "-s", "512M", img)
			args := append([]string{"-q"}, strings.Fields(v.mkfs)...)
			if out, err := exec.Command("mkfs.btrfs", append(args, img)...).CombinedOutput(); err != nil {
				t.Logf("this mkfs.btrfs does not make it: %s", interop.Tail(out))
				return
			}
			interop.Mounted(t, img, v.mount, func(dir string) {
				interop.Tree(t, filepath.Join(dir, "tree"), uint64(i), 60)
				interop.Sh(t, "cp", "-a", filepath.Join(dir, "tree"), want)
			})
			interop.Judged(t, img)
			out := filepath.Join(t.TempDir(), "out")
			interop.Btrlab(t, "get", "-r", img+":/", out)
			interop.SameTree(t, out, want)
			if v.readOnly != "" {
				refused(t, img, v.readOnly)
				return
			}
			interop.BtrlabTurn(t, img, want, 1)
			interop.Mounted(t, img, v.mount, func(dir string) {
				interop.SameTree(t, dir, want)
				interop.Scrubbed(t, dir)
			})
			interop.Judged(t, img)
		})
	}
}
