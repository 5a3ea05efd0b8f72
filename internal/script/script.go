// Package script is the language of the lines of sh that act on a file system: its words, and those
// of its verbs that need nothing but the file system. sh itself has all verbs of the command line;
// what is a verb here does there the same.
package script

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
)

// Line is one line, of which Parse has understood the verb, its flags and its paths. The zero Line
// does nothing.
type Line struct {
	Text string // as it stands in the script
	run  op
}

type op func(t *sched.Task, x *fs.FS) error

// Run does what the line says on x. A verb with several paths ends at the first error.
func (l Line) Run(t *sched.Task, x *fs.FS) error {
	if l.run == nil {
		return nil
	}
	return l.run(t, x)
}

// Parse reads one line.
func Parse(text string) (Line, error) {
	l := Line{Text: strings.TrimSpace(text)}
	words, err := Words(text)
	if err != nil || len(words) == 0 {
		return l, err
	}
	v, ok := verbs[words[0]]
	if !ok {
		return l, fmt.Errorf("there is no verb %q", words[0])
	}
	f := pflag.NewFlagSet(words[0], pflag.ContinueOnError)
	read := v.flags(f)
	if err := f.Parse(words[1:]); err != nil {
		return l, fmt.Errorf("%s: %w", words[0], err)
	}
	if n := f.NArg(); n < v.least || n > v.most {
		return l, fmt.Errorf("%s: have %d arguments, want %s", words[0], n, v.args)
	}
	l.run, err = read(f.Args())
	return l, err
}

// MustParse is Parse of a line that is ours: a bad one is a panic.
func MustParse(text string) Line {
	l, err := Parse(text)
	if err != nil {
		panic(fmt.Sprintf("script: %s: %v", text, err))
	}
	return l
}

// Steps are the lines of a text of one line, with semicolons between them.
func Steps(text string) (list []string) {
	for s := range strings.SplitSeq(text, ";") {
		if s = strings.TrimSpace(s); s != "" {
			list = append(list, s)
		}
	}
	return list
}

// verb is a verb of a line.
type verb struct {
	args        string // as help has them
	least, most int    // how many
	flags       func(f *pflag.FlagSet) func(args []string) (op, error)
}

const many = 1 << 10

// verbs are those that need nothing but the file system.
var verbs = map[string]verb{
	"touch":     {"/path...", 1, many, plain(each(Touch))},
	"rm":        {"/path...", 1, many, plain(each(func(t *sched.Task, x *fs.FS, path string) error { return x.Unlink(t, path) }))},
	"mkdir":     {"/path...", 1, many, mkdir},
	"chmod":     {"MODE /path...", 2, many, plain(chmod)},
	"fsync":     {"/path...", 1, many, plain(each(func(t *sched.Task, x *fs.FS, path string) error { return x.Fsync(t, path) }))},
	"fdatasync": {"/path...", 1, many, plain(each(func(t *sched.Task, x *fs.FS, path string) error { return x.Fsync(t, path) }))},
	"sync":      {"none", 0, 0, plain(func([]string) (op, error) { return func(t *sched.Task, x *fs.FS) error { return x.Sync(t) }, nil })},
	"drop-caches": {"none", 0, 0, plain(func([]string) (op, error) {
		return func(t *sched.Task, x *fs.FS) error { x.DropCaches(t); return nil }, nil
	})},
	"setxattr": {"NAME VALUE /path", 3, 3, plain(func(a []string) (op, error) {
		return func(t *sched.Task, x *fs.FS) error { return x.Setxattr(t, a[2], a[0], []byte(a[1])) }, nil
	})},
	"removexattr": {"NAME /path...", 2, many, plain(func(a []string) (op, error) {
		return each(func(t *sched.Task, x *fs.FS, path string) error { return RemoveXattr(t, x, path, a[0]) })(a[1:])
	})},
	"mv": {"/from /to", 2, 2, plain(func(a []string) (op, error) {
		return func(t *sched.Task, x *fs.FS) error { return Move(t, x, a[0], a[1]) }, nil
	})},
	"ln":        {"/target /name", 2, 2, ln},
	"truncate":  {"--size N /path", 1, 1, truncate},
	"fallocate": {"--length N /path", 1, 1, fallocate},
	"write":     {"/path", 1, 1, write},
}

// Verbs are the names of the verbs, in order.
func Verbs() []string { return slices.Sorted(maps.Keys(verbs)) }

// plain is a verb without flags.
func plain(read func(args []string) (op, error)) func(f *pflag.FlagSet) func(args []string) (op, error) {
	return func(*pflag.FlagSet) func(args []string) (op, error) { return read }
}

// each does f to each path.
func each(f func(t *sched.Task, x *fs.FS, path string) error) func(paths []string) (op, error) {
	return func(paths []string) (op, error) {
		return func(t *sched.Task, x *fs.FS) error {
			for _, p := range paths {
				if err := f(t, x, p); err != nil {
					return err
				}
			}
			return nil
		}, nil
	}
}

func mkdir(f *pflag.FlagSet) func(args []string) (op, error) {
	parents, mode := f.BoolP("parents", "p", false, ""), f.StringP("mode", "m", "755", "")
	return func(paths []string) (op, error) {
		perm, err := ParseMode(*mode)
		if err != nil {
			return nil, err
		}
		return each(func(t *sched.Task, x *fs.FS, path string) error {
			if *parents {
				return MkdirAll(t, x, path, perm)
			}
			return x.Mkdir(t, path, perm)
		})(paths)
	}
}

func chmod(a []string) (op, error) {
	mode, err := ParseMode(a[0])
	if err != nil {
		return nil, err
	}
	return each(func(t *sched.Task, x *fs.FS, path string) error { return x.Chmod(t, path, mode) })(a[1:])
}

func ln(f *pflag.FlagSet) func(args []string) (op, error) {
	symbolic := f.BoolP("symbolic", "s", false, "")
	return func(a []string) (op, error) {
		return func(t *sched.Task, x *fs.FS) error {
			name := IntoDir(t, x, a[0], a[1])
			if *symbolic {
				return x.Symlink(t, a[0], name)
			}
			return x.Link(t, a[0], name)
		}, nil
	}
}

func truncate(f *pflag.FlagSet) func(args []string) (op, error) {
	var size Size
	f.Var(&size, "size", "")
	return func(a []string) (op, error) {
		if !size.Given {
			return nil, fmt.Errorf("no size, want --size N")
		}
		return onFile(a[0], 0, func(t *sched.Task, f *fs.File) error { return f.Truncate(t, size.N) }), nil
	}
}

func fallocate(f *pflag.FlagSet) func(args []string) (op, error) {
	var r Range
	r.Flags(f)
	return func(a []string) (op, error) {
		if r.Length.N == 0 {
			return nil, fmt.Errorf("no length, want --length N")
		}
		return onFile(a[0], 0, r.Allocate), nil
	}
}

func write(f *pflag.FlagSet) func(args []string) (op, error) {
	var off, length Size
	f.Var(&off, "offset", "")
	f.Var(&length, "length", "")
	data, direct := f.String("data", "", ""), f.Bool("direct", false, "")
	return func(a []string) (op, error) {
		if !f.Changed("data") && !length.Given {
			return nil, fmt.Errorf("nothing to write, want --data or --length")
		}
		rq, flags := kiocb.Request{Pos: uint64(off.N)}, fs.OpenFlags(0)
		if *direct {
			rq.Flags, flags = kiocb.Direct, fs.O_DIRECT
		}
		text := Repeat(*data, int(length.N), length.Given)
		return onFile(a[0], flags, func(t *sched.Task, f *fs.File) error {
			_, err := f.WriteIter(t, rq, iopath.Source{Buf: text})
			return err
		}), nil
	}
}
