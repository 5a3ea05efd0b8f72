package conform

import (
	"errors"
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/kiocb"
	lang "btrlab/internal/script"
)

// machine does the steps of a script: the kernel, and the engine. Names are of the top directory,
// or one below it. A file that is written or read stays open until closed.
type machine interface {
	create(name string) error
	write(name string, off, n int64, how kiocb.Flags) error
	read(name string, off, n int64, how kiocb.Flags) error
	fault(name string, off int64) error // reads a byte of a mapping
	store(name string, off int64) error // writes a byte of a mapping
	truncate(name string, size int64) error
	fallocate(name string, mode uint32, off, n int64) error
	fsync(name string) error // of a file or a directory
	sync() error
	nosum() error            // files that are created from now on have no checksums
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
	answer(what string)     // notes what a step that may fail has said: "done", "EAGAIN"
}

// do carries out one step of a script. A step after "!" must fail; one after "?" may, and what it
// says is told as a step that is compared.
func do(m machine, step string) error {
	words, err := lang.Words(step)
	if err != nil {
		return err
	}
	fails, may := words[0] == "!", words[0] == "?"
	if fails || may {
		words = words[1:]
	}
	err = call(m, words)
	if no, ok := answerOf(err); may && ok {
		m.answer(no)
		return nil
	}
	switch {
	case fails && err == nil:
		return fmt.Errorf("%s: succeeded, want an error", step)
	case fails || err == nil:
		return nil
	}
	return fmt.Errorf("%s: %w", step, err)
}

// answerOf words what a call has said: "done", or the name of an errno. False is an error of ours.
func answerOf(err error) (string, bool) {
	var no errno.Errno
	switch {
	case err == nil:
		return "done", true
	case errors.Is(err, errno.EAGAIN): // a kiocb.Again is no Errno
		return errno.Name(errno.EAGAIN), true
	case errors.As(err, &no):
		return errno.Name(no), true
	}
	return "", false
}

// What a verb is called with decides its table: a name, two names, a name and an offset, a name and
// a range.
var (
	named = map[string]func(m machine, name string) error{
		"create": machine.create, "fsync": machine.fsync, "start": machine.start, "drop": machine.drop,
		"nocow": machine.nocow, "close": machine.close, "mkdir": machine.mkdir, "rmdir": machine.rmdir,
		"unlink": machine.unlink, "snapshot": machine.snapshot, "setxattr": machine.setxattr, "chmod": machine.chmod,
		"fill": machine.fill,
	}
	paired = map[string]func(m machine, name, second string) error{
		"link": machine.link, "rename": machine.rename, "symlink": machine.symlink, "reflink": machine.reflink,
	}
	placed = map[string]func(m machine, name string, off int64) error{
		"fault": machine.fault, "store": machine.store, "truncate": machine.truncate,
	}
	ranged = map[string]func(m machine, name string, off, n int64) error{
		"write":   write(0),
		"dwrite":  write(kiocb.Direct),
		"nwrite":  write(kiocb.Nowait),
		"ndwrite": write(kiocb.Nowait | kiocb.Direct),
		"swrite":  write(kiocb.DSync),
		"read":    func(m machine, name string, off, n int64) error { return m.read(name, off, n, 0) },
		"dread":   func(m machine, name string, off, n int64) error { return m.read(name, off, n, kiocb.Direct) },
		"ndread": func(m machine, name string, off, n int64) error {
			return m.read(name, off, n, kiocb.Nowait|kiocb.Direct)
		},
		"falloc": fallocate(0),
		"keep":   fallocate(fs.FALLOC_FL_KEEP_SIZE),
		"punch":  fallocate(fs.FALLOC_FL_PUNCH_HOLE | fs.FALLOC_FL_KEEP_SIZE),
		"zero":   fallocate(fs.FALLOC_FL_ZERO_RANGE),
	}
)

func write(how kiocb.Flags) func(m machine, name string, off, n int64) error {
	return func(m machine, name string, off, n int64) error { return m.write(name, off, n, how) }
}

func fallocate(mode uint32) func(m machine, name string, off, n int64) error {
	return func(m machine, name string, off, n int64) error { return m.fallocate(name, mode, off, n) }
}

// call does a step, which is one of ours: a word too few or one that is unknown is a panic.
func call(m machine, words []string) error {
	verb := words[0]
	switch verb {
	case "sync":
		return m.sync()
	case "nosum":
		return m.nosum()
	}
	if f := named[verb]; f != nil {
		return f(m, words[1])
	}
	if f := paired[verb]; f != nil {
		return f(m, words[1], words[2])
	}
	if f := placed[verb]; f != nil {
		return f(m, words[1], parseSize(words[2]))
	}
	if f := ranged[verb]; f != nil {
		return f(m, words[1], parseSize(words[2]), parseSize(words[3]))
	}
	panic(fmt.Sprintf("conform: step %q has an unknown verb", words))
}

// parseSize reads 4k, 512, 1m.
func parseSize(s string) int64 {
	n, err := lang.ParseSize(s)
	if err != nil {
		panic(fmt.Sprintf("conform: %v", err))
	}
	return n
}

// steps splits a script at semicolons.
func steps(script string) []string { return lang.Steps(script) }
