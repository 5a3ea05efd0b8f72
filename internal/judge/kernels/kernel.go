// Package kernels boots other Linux kernels, so that they can be judges: a machine of qemu, without
// root on the host, whose init is this program.
//
// The host's side: Find looks a kernel up in the folder of one that make kernels has unpacked, Boot
// starts a Machine with it, and Guest.Wait returns what the job left: its output, its exit code and
// the files that it wrote into /out. The guest's side: Init is process 1. It mounts what a program
// expects, loads the modules, runs the job, writes /out to the last disk as a tar archive and turns
// the machine off. What a job does is not known here: package jobs has the jobs.
//
// The processors are qemu's own (TCG): what such a machine says of steps, orders, verdicts and
// bytes is as good as a real one's; of time it says nothing.
//
// Model: none of the kernel's; this boots kernels.
package kernels

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// FolderEnv names the folder in which kernels are looked up by their versions.
const FolderEnv = "BTRLAB_KERNELS"

// Folder is that folder: the one that FolderEnv names, or btrlab/kernels of the user's cache.
func Folder() string {
	if dir := os.Getenv(FolderEnv); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "btrlab", "kernels")
}

// Kernel is a kernel that can be booted, unpacked from a package.
type Kernel struct {
	Version string // "6.1", as it is asked for
	Release string // "6.1.0-50-cloud-amd64", as its modules have it
	Image   string // path of the kernel
	Modules string // folder of its modules
}

// ErrNoKernel means that there is no kernel of the name that was asked for.
var ErrNoKernel = errors.New("no such kernel")

// Find looks up a kernel by the folder of an unpacked package, or by its version in Folder. An
// error is one line and wraps ErrNoKernel if there is none.
func Find(name string) (*Kernel, error) {
	dir := name
	version := strings.Trim(name, "0123456789.") == "" && strings.Contains(name, ".")
	if version && !isDir(dir) {
		dir = filepath.Join(Folder(), name)
	}
	if !isDir(dir) {
		if !version {
			return nil, fmt.Errorf("kernel %s: %w: want a folder of an unpacked package, or a version", name, ErrNoKernel)
		}
		return nil, fmt.Errorf("kernel %s: %w in %s: make fetch V=%s fetches it, if it is one of 5.10, 6.1, 6.12, 6.18 and 7.3", name, ErrNoKernel, Folder(), name)
	}
	k := &Kernel{Version: filepath.Base(name)}
	for _, lib := range []string{"lib/modules", "usr/lib/modules"} {
		list, err := os.ReadDir(filepath.Join(dir, lib))
		if err != nil {
			continue
		}
		for _, e := range list {
			k.Release, k.Modules = e.Name(), filepath.Join(dir, lib, e.Name())
		}
	}
	if k.Modules == "" {
		return nil, fmt.Errorf("kernel %s: %w: %s has no lib/modules", name, ErrNoKernel, dir)
	}
	for _, image := range []string{filepath.Join(dir, "boot", "vmlinuz-"+k.Release), filepath.Join(k.Modules, "vmlinuz")} {
		if _, err := os.Stat(image); err == nil {
			k.Image = image
			return k, nil
		}
	}
	return nil, fmt.Errorf("kernel %s: %w: %s has modules of %s and no vmlinuz", name, ErrNoKernel, dir, k.Release)
}

// Installed lists the kernels of Folder, by ascending version.
func Installed() []*Kernel {
	var list []*Kernel
	entries, err := os.ReadDir(Folder())
	if err != nil {
		return nil // there is no such folder
	}
	for _, e := range entries {
		if k, err := Find(filepath.Join(Folder(), e.Name())); err == nil {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(a, b *Kernel) int { return Compare(a.Version, b.Version) })
	return list
}

// Compare orders versions: 5.10 comes after 5.9.
func Compare(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		x, _ := strconv.Atoi(as[i])
		y, _ := strconv.Atoi(bs[i])
		if x != y {
			return x - y
		}
	}
	return len(as) - len(bs)
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// moduleFiles are the files of the kernel's modules, by name: a hyphen of a file is an underscore.
func (k *Kernel) moduleFiles() (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(filepath.Join(k.Modules, "kernel"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(d.Name(), ".ko") && !d.IsDir() {
			name, _, _ := strings.Cut(d.Name(), ".ko")
			files[moduleName(name)] = path
		}
		return err
	})
	return files, err
}

func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }
