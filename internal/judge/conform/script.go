package conform

import (
	"fmt"
	"strconv"
	"strings"
)

// machine does the steps of a script: the kernel, and the engine. Names are of the top directory,
// or one below it. A file that is written or read stays open until closed.
type machine interface {
	create(name string) error
	write(name string, off, n int64, direct bool) error
	read(name string, off, n int64, direct bool) error
	fault(name string, off int64) error // reads a byte of a mapping
	truncate(name string, size int64) error
	fallocate(name string, mode uint32, off, n int64) error
	fsync(name string) error // of a file or a directory
	sync() error
	start(name string) error // writeback of the file, without a wait for its end
	drop(name string) error  // its clean pages
	nocow(name string) error // of an empty file
	close(name string) error
	mkdir(name string) error
	rmdir(name string) error
	link(old, name string) error
	unlink(name string) error
	rename(old, name string) error
	symlink(target, name string) error
	reflink(src, name string) error // into a file that is there
	snapshot(name string) error     // of the top directory
	setxattr(name string) error
	chmod(name string) error
	fill(name string) error // allocate space until there is none
}

// do carries out one step of a script. A step after "!" must fail.
func do(m machine, step string) error {
	words := strings.Fields(step)
	fails := words[0] == "!"
	if fails {
		words = words[1:]
	}
	err := call(m, words)
	switch {
	case fails && err == nil:
		return fmt.Errorf("%s: succeeded, want an error", step)
	case fails || err == nil:
		return nil
	}
	return fmt.Errorf("%s: %w", step, err)
}

// Modes of fallocate, as in linux/falloc.h.
const (
	keepSize  = 0x01
	punchHole = 0x02
	zeroRange = 0x10
)

func call(m machine, words []string) error {
	verb, name := words[0], ""
	if len(words) > 1 {
		name = words[1]
	}
	num := func(i int) int64 {
		if i >= len(words) {
			panic(fmt.Sprintf("conform: step %q has no word %d", words, i))
		}
		return parseSize(words[i])
	}
	second := func() string { return words[2] }
	switch verb {
	case "create":
		return m.create(name)
	case "write":
		return m.write(name, num(2), num(3), false)
	case "dwrite":
		return m.write(name, num(2), num(3), true)
	case "read":
		return m.read(name, num(2), num(3), false)
	case "dread":
		return m.read(name, num(2), num(3), true)
	case "fault":
		return m.fault(name, num(2))
	case "truncate":
		return m.truncate(name, num(2))
	case "falloc":
		return m.fallocate(name, 0, num(2), num(3))
	case "keep":
		return m.fallocate(name, keepSize, num(2), num(3))
	case "punch":
		return m.fallocate(name, punchHole|keepSize, num(2), num(3))
	case "zero":
		return m.fallocate(name, zeroRange, num(2), num(3))
	case "fsync":
		return m.fsync(name)
	case "sync":
		return m.sync()
	case "start":
		return m.start(name)
	case "drop":
		return m.drop(name)
	case "nocow":
		return m.nocow(name)
	case "close":
		return m.close(name)
	case "mkdir":
		return m.mkdir(name)
	case "rmdir":
		return m.rmdir(name)
	case "link":
		return m.link(name, second())
	case "unlink":
		return m.unlink(name)
	case "rename":
		return m.rename(name, second())
	case "symlink":
		return m.symlink(name, second())
	case "reflink":
		return m.reflink(name, second())
	case "snapshot":
		return m.snapshot(name)
	case "setxattr":
		return m.setxattr(name)
	case "chmod":
		return m.chmod(name)
	case "fill":
		return m.fill(name)
	}
	panic(fmt.Sprintf("conform: step %q has an unknown verb", words))
}

// parseSize reads 4k, 512, 1m.
func parseSize(s string) int64 {
	unit := int64(1)
	switch {
	case strings.HasSuffix(s, "k"):
		unit = 1 << 10
	case strings.HasSuffix(s, "m"):
		unit = 1 << 20
	}
	n, err := strconv.ParseInt(strings.TrimRight(s, "km"), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("conform: size %q", s))
	}
	return n * unit
}

// steps splits a script at semicolons.
func steps(script string) (list []string) {
	for _, s := range strings.Split(script, ";") {
		if s = strings.TrimSpace(s); s != "" {
			list = append(list, s)
		}
	}
	return list
}
