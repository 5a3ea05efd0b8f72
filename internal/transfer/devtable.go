package transfer

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	gopath "path"
	"strconv"
	"strings"
	"time"

	"btrlab/internal/format"
	"btrlab/internal/progs/mkfs"
)

// A device table says which files a tree has besides, and whose they are:
//
//	name type mode uid gid major minor start inc count
//
// Model: genext2fs -D, release 1.5. Type is f, d, c, b, p or s, the mode is octal, and - or a field
// that is missing is 0. With a count the line makes devices of the name with the numbers from start
// to count-1 after it, of minor numbers minor+number*inc-start. Differences: what genext2fs skips
// with a message, or makes of no use, is an error here: a directory that is not there, a file of
// another type, a type that it does not know, a symbolic link, which has no target.

// deviceTypes are the types of a table.
var deviceTypes = map[string]uint32{"f": format.S_IFREG, "d": format.S_IFDIR, "c": format.S_IFCHR, "b": format.S_IFBLK, "p": format.S_IFIFO, "s": format.S_IFSOCK}

// The most that an inode item has of a device's numbers, and how many devices a table makes.
const (
	majorMax   = 1<<12 - 1
	minorMax   = 1<<20 - 1
	devicesMax = 1 << 14
)

// deviceLine is a line of a table.
type deviceLine struct {
	name              string
	mode              uint32 // with the type
	uid, gid          uint32
	major, minor      uint64
	start, inc, count uint64
}

func parseDeviceLine(words []string) (l deviceLine, err error) {
	if len(words) < 5 || len(words) > 10 {
		return l, fmt.Errorf("has %d words, want name type mode uid gid, and of devices major minor start inc count", len(words))
	}
	l.name = words[0]
	kind, ok := deviceTypes[words[1]]
	if !ok {
		return l, fmt.Errorf("%s: type %q, want f, d, c, b, p or s", l.name, words[1])
	}
	num := func(i, base, bits int) (n uint64) {
		if err == nil && i < len(words) && words[i] != "-" {
			if n, err = strconv.ParseUint(words[i], base, bits); err != nil {
				err = fmt.Errorf("%s: %q, want a number of base %d and %d bits, or -", l.name, words[i], base, bits)
			}
		}
		return n
	}
	l.mode = kind | uint32(num(2, 8, 12))
	l.uid, l.gid = uint32(num(3, 10, 32)), uint32(num(4, 10, 32))
	l.major, l.minor = num(5, 10, 32), num(6, 10, 32)
	l.start, l.inc, l.count = num(7, 10, 32), num(8, 10, 20), num(9, 10, 32)
	return l, err
}

// Table changes root, or makes a tree if that is nil, as the device table r says; what it makes is
// as old as mtime. Errors name the line.
func (s *Scan) Table(r io.Reader, mtime time.Time, root *mkfs.Entry) (*mkfs.Entry, error) {
	p := newPlan(s, root)
	_, mtime = dated(s.Date, mtime, mtime)
	in, made := bufio.NewScanner(r), uint64(0)
	for n := 1; in.Scan(); n++ {
		words := strings.Fields(in.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		l, err := parseDeviceLine(words)
		if err == nil {
			err = p.devices(l, mtime, &made)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return p.root, in.Err()
}

// devices makes or changes what a line names; made counts devices.
func (p *plan) devices(l deviceLine, mtime time.Time, made *uint64) error {
	_, isDevice := deviceKinds[l.mode&format.S_IFMT]
	if l.count == 0 || !isDevice {
		return p.device(l, l.name, l.minor, mtime)
	}
	if *made += l.count - min(l.start, l.count); *made > devicesMax {
		return fmt.Errorf("%s: more than %d devices", l.name, devicesMax)
	}
	for i := l.start; i < l.count; i++ {
		if err := p.device(l, l.name+strconv.FormatUint(i, 10), l.minor+i*l.inc-l.start, mtime); err != nil {
			return err
		}
	}
	return nil
}

// device makes or changes one name.
func (p *plan) device(l deviceLine, name string, minor uint64, mtime time.Time) error {
	path := strings.Trim(gopath.Clean("/"+name), "/")
	e, d := p.root, (*mkfs.Entry)(nil)
	for part := range strings.SplitSeq(path, "/") {
		if path == "" {
			break
		}
		if d = e; d == nil || !d.IsDir() {
			return fmt.Errorf("%s: its directory is not there", name)
		}
		e = p.child(d, part)
	}
	switch {
	case e == nil && len(gopath.Base(path)) > format.MaxNameLen:
		return fmt.Errorf("%s: a name has at most %d bytes", name, format.MaxNameLen)
	case e == nil:
		e = p.entry(gopath.Base(path))
		e.Mode, e.Atime, e.Mtime = l.mode, mtime, mtime
		p.add(d, e)
	default:
		e = cmp.Or(e.Link, e)
	}
	if e.Mode&format.S_IFMT != l.mode&format.S_IFMT {
		return fmt.Errorf("%s: is there, and of another type", name)
	}
	if src, ok := e.Source.(*source); ok {
		src.trusted = true // capabilities are those of the owner that is named
	} else {
		e.Source = &source{from: hostFile{path: hostPath(e)}, trusted: true}
	}
	e.Mode, e.UID, e.GID = l.mode, l.uid, l.gid
	if _, isDevice := deviceKinds[l.mode&format.S_IFMT]; isDevice {
		if l.major > majorMax || minor > minorMax {
			return errors.New(name + ": want a major number to 4095 and a minor to 1048575")
		}
		e.Rdev = l.major<<20 | minor
	}
	return nil
}
