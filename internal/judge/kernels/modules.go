package kernels

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/ulikunitz/xz"
)

// wanted are the modules of every machine: disks, ports, loop devices, FUSE, btrfs and the
// checksums that it asks the kernel's crypto library for. One that a kernel does not have is built
// in.
var wanted = []string{"virtio_pci", "virtio_blk", "virtio_console", "loop", "crc32c_generic", "crc32c_intel", "crc32c_cryptoapi", "xxhash_generic", "sha256_generic", "sha256_ssse3",
	"blake2b_generic", "btrfs", "fuse"}

// module is a module in the order in which it is loaded.
type module struct {
	name string
	data []byte
}

// loadOrder reads the modules and those that they depend on, each after those.
func (k *Kernel) loadOrder(names []string) (list []module, err error) {
	files, err := k.moduleFiles()
	if err != nil {
		return nil, fmt.Errorf("modules of kernel %s: %w", k.Release, err)
	}
	var add func(name string) error
	add = func(name string) error {
		if slices.ContainsFunc(list, func(m module) bool { return m.name == name }) || files[name] == "" {
			return nil
		}
		data, err := readModule(files[name])
		if err != nil {
			return err
		}
		depends, err := dependencies(data)
		if err != nil {
			return fmt.Errorf("%s: %w", files[name], err)
		}
		for _, d := range depends {
			if err := add(moduleName(d)); err != nil {
				return err
			}
		}
		list = append(list, module{name, data})
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// readModule reads a module's file, which may be compressed by xz.
func readModule(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil || strings.HasSuffix(path, ".ko") {
		return b, err
	}
	if !strings.HasSuffix(path, ".xz") {
		return nil, fmt.Errorf("%s: bad module, have another compression than xz", path)
	}
	r, err := xz.NewReader(bytes.NewReader(b))
	if err == nil {
		b, err = io.ReadAll(r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// dependencies are the modules that a module names in its section .modinfo.
func dependencies(data []byte) (list []string, err error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, fmt.Errorf("bad module, have no section .modinfo")
	}
	b, err := s.Data()
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(b), "\x00") {
		if names, ok := strings.CutPrefix(line, "depends="); ok && names != "" {
			list = append(list, strings.Split(names, ",")...)
		}
	}
	return list, nil
}
