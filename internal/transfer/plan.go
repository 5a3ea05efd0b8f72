package transfer

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	gopath "path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"btrlab/internal/compress"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/image"
	"btrlab/internal/progs/mkfs"
)

// A plan is an mtree(5) specification with some words more: what is in a file system, or what is
// different from a directory that it begins with. Each line has a name and words KEYWORD=VALUE; #
// begins a comment, a \ at the end goes on in the next line. A name with / is a path from the root;
// any other is in the directory that is open: one with type=dir opens itself, .. closes it. /set
// gives the names that follow words, /unset takes them back. Characters of names and values can be
// \ooo, in octal, \s, \t, \n and others as vis(3) writes them.
//
// go-mtree reads such files, too. It keeps no line numbers, which every message here has.

// planWords are the words that Plan knows, with what they mean; those of an empty function are
// about contents and are of no use here.
var planWords = map[string]func(p *plan, e *mkfs.Entry, s *source, value string) error{
	"type": func(p *plan, e *mkfs.Entry, _ *source, v string) error {
		kind, ok := planTypes[v]
		if !ok {
			return fmt.Errorf("want file, dir, link, char, block, fifo or socket")
		}
		if kind != e.Mode&format.S_IFMT {
			e.Mode = kind | e.Mode&0o7777
		}
		return nil
	},
	"mode": func(_ *plan, e *mkfs.Entry, _ *source, v string) error {
		n, err := strconv.ParseUint(v, 8, 12)
		if err != nil {
			return errors.New("want an octal number to 7777")
		}
		e.Mode = e.Mode&format.S_IFMT | uint32(n)
		return nil
	},
	"uid": func(_ *plan, e *mkfs.Entry, _ *source, v string) (err error) {
		e.UID, err = number32(v)
		return err
	},
	"gid": func(_ *plan, e *mkfs.Entry, _ *source, v string) (err error) {
		e.GID, err = number32(v)
		return err
	},
	"time": func(_ *plan, e *mkfs.Entry, _ *source, v string) error {
		sec, frac, _ := strings.Cut(v, ".")
		s, serr := strconv.ParseInt(sec, 10, 64)
		ns, nerr := strconv.ParseUint("0"+frac, 10, 32)
		if serr != nil || nerr != nil || len(frac) > 9 || ns >= 1e9 {
			return errors.New("want seconds since 1970, and nanoseconds after a dot")
		}
		e.Mtime = time.Unix(s, int64(ns)) // mtree's fraction is a number, not decimals
		e.Atime = e.Mtime
		return nil
	},
	"link":     func(_ *plan, e *mkfs.Entry, _ *source, v string) error { e.Target = v; return nil },
	"hardlink": (*plan).hardlink,
	"device": func(_ *plan, e *mkfs.Entry, _ *source, v string) error {
		f := strings.Split(v, ",")
		if len(f) == 3 { // the format of some system comes first
			f = f[1:]
		}
		if len(f) == 2 {
			major, merr := strconv.ParseUint(f[0], 0, 12)
			minor, nerr := strconv.ParseUint(f[1], 0, 20)
			if merr == nil && nerr == nil {
				e.Rdev = major<<20 | minor
				return nil
			}
		}
		return errors.New("want MAJOR,MINOR, to 4095 and 1048575")
	},
	"contents": func(p *plan, e *mkfs.Entry, s *source, v string) error {
		if !filepath.IsAbs(v) {
			v = filepath.Join(p.dir, v)
		}
		st, err := os.Stat(v)
		if err == nil && !st.Mode().IsRegular() {
			err = errors.New("is no file")
		}
		if err != nil {
			return err
		}
		s.from, e.Size = hostFile{path: v, follow: true, bare: true}, st.Size()
		return nil
	},
	"content": func(_ *plan, e *mkfs.Entry, s *source, v string) error {
		s.from, e.Size = text(v), int64(len(v))
		return nil
	},
	"chattr": func(_ *plan, _ *mkfs.Entry, s *source, v string) error {
		for _, c := range strings.TrimPrefix(v, "+") {
			flag := fs.ChattrFlag(string(c))
			if flag == 0 {
				return fmt.Errorf("no flag %q of chattr", c)
			}
			s.flags |= flag
		}
		return nil
	},
	"subvol": func(_ *plan, e *mkfs.Entry, _ *source, v string) error {
		if !slices.Contains([]string{"", "rw", "ro", "default", "default-ro"}, v) {
			return errors.New("want rw, ro, default or default-ro")
		}
		e.Subvol, e.ReadOnly, e.Default = true, strings.HasSuffix(v, "ro"), strings.HasPrefix(v, "default")
		return nil
	},
	"compression": func(_ *plan, _ *mkfs.Entry, s *source, v string) error {
		if _, err := compress.Parse(v); err != nil && v != "none" {
			return err
		}
		s.xattrs = append(s.xattrs, image.Xattr{Name: "btrfs.compression", Value: []byte(v)})
		return nil
	},
}

// planIgnored are words about contents and names, which are taken as they are, and of other
// systems.
var planIgnored = []string{"size", "nlink", "cksum", "md5", "md5digest", "rmd160", "rmd160digest", "ripemd160digest", "sha1", "sha1digest",
	"sha256", "sha256digest", "sha384", "sha384digest", "sha512", "sha512digest", "tags", "nochange", "ignore", "inode", "resdevice"}

var planTypes = map[string]uint32{"file": format.S_IFREG, "dir": format.S_IFDIR, "link": format.S_IFLNK, "char": format.S_IFCHR,
	"block": format.S_IFBLK, "fifo": format.S_IFIFO, "socket": format.S_IFSOCK}

func number32(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, errors.New("want a number of 32 bits")
	}
	return uint32(n), nil
}

// plan reads a specification.
type plan struct {
	s    *Scan
	root *mkfs.Entry
	dir  string // relative contents begin here
	set  []string
	open []*mkfs.Entry        // directories, the root first
	made map[*mkfs.Entry]bool // entries of the plan that no line has been about

	plain *source                // of the entries of which only attributes are planned: not changed
	in    *mkfs.Entry            // the directory that got the last name
	names map[string]*mkfs.Entry // of in
	left  map[*mkfs.Entry]bool   // those that were packed
}

func newPlan(s *Scan, root *mkfs.Entry) *plan {
	p := &plan{s: s, root: root, made: map[*mkfs.Entry]bool{}, left: map[*mkfs.Entry]bool{}, plain: &source{trusted: true}}
	if root == nil {
		p.root = p.entry("")
		p.root.Mode = format.S_IFDIR | 0o755
	}
	return p
}

// leave makes the entries of a directory small, for the first time: who comes back may do so often.
func (p *plan) leave(d *mkfs.Entry) {
	if p.left[d] {
		return
	}
	if p.left[d] = true; p.in == d {
		p.in = nil
	}
	d.Pack(p.plain)
}

// add puts e into the directory d.
func (p *plan) add(d, e *mkfs.Entry) {
	if d.Add(e); p.in != d {
		if p.in != nil && p.in != p.root {
			p.leave(p.in)
		}
		p.in, p.names = d, make(map[string]*mkfs.Entry, len(d.Entries))
		for _, e := range d.Entries {
			p.names[e.Name] = e
		}
	}
	p.names[e.Name] = e
}

// child is the entry of the directory d that has the name; nil if there is none.
func (p *plan) child(d *mkfs.Entry, name string) *mkfs.Entry {
	if d == p.in {
		return p.names[name]
	}
	return d.Child(name)
}

// Plan changes root, or makes a tree if that is nil, as the specification r says. Relative names of
// contents begin in dir. Errors name the line.
func (s *Scan) Plan(r io.Reader, dir string, root *mkfs.Entry) (*mkfs.Entry, error) {
	p := newPlan(s, root)
	p.dir, p.open = dir, []*mkfs.Entry{p.root}
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	line, at := "", 0
	for n := 1; in.Scan(); n++ {
		if line == "" {
			at = n
		}
		if err := s.count.w.Stop(); err != nil {
			return nil, err
		}
		part, more := strings.CutSuffix(in.Text(), "\\")
		line += part
		if more && !strings.HasSuffix(part, "\\") {
			continue
		}
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", at, err)
		}
		line = ""
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	if line != "" {
		return nil, fmt.Errorf("line %d: goes on after the end of the file", at)
	}
	for _, d := range p.open {
		p.leave(d)
	}
	return p.root, nil
}

// entry is a name of a plan, with the attributes that it has unless the plan says more.
func (p *plan) entry(name string) *mkfs.Entry {
	now := p.s.Date
	if now.IsZero() {
		now = time.Now()
	}
	e := &mkfs.Entry{Name: name, Mode: format.S_IFREG | 0o644, Atime: now, Mtime: now, Source: p.plain}
	p.made[e] = true
	return e
}

func (p *plan) line(line string) error {
	words := strings.Fields(line)
	if len(words) == 0 || strings.HasPrefix(words[0], "#") {
		return nil
	}
	switch words[0] {
	case "/set":
		p.unset(words[1:])
		p.set = append(p.set, words[1:]...)
		return nil
	case "/unset":
		p.unset(words[1:])
		return nil
	case "..":
		if len(p.open) == 1 {
			return errors.New("no directory is open")
		}
		last := len(p.open) - 1
		p.leave(p.open[last])
		p.open = p.open[:last]
		return nil
	}
	return p.name(words[0], words[1:])
}

// unset takes words back: those of the same name, or all.
func (p *plan) unset(words []string) {
	for _, w := range words {
		key, _, _ := strings.Cut(w, "=")
		p.set = slices.DeleteFunc(p.set, func(s string) bool {
			k, _, _ := strings.Cut(s, "=")
			return k == key || key == "all"
		})
	}
}

// name makes or changes an entry.
func (p *plan) name(word string, words []string) error {
	name, err := unvis(word)
	if err != nil {
		return err
	}
	e, err := p.find(name)
	if err != nil {
		return err
	}
	if e.Link != nil { // a listing has each name of an inode
		e = e.Link
	}
	isNew := p.made[e]
	delete(p.made, e)
	s, ok := e.Source.(*source)
	switch {
	case !ok:
		s = &source{from: hostFile{path: hostPath(e)}, trusted: true}
	case s == p.plain:
		s = &source{trusted: true}
	}
	e.Source = s
	if isNew {
		words = append(slices.Clone(p.set), words...)
	}
	// The type decides what the rest means.
	slices.SortStableFunc(words, func(a, b string) int {
		return cmp.Compare(boolInt(!strings.HasPrefix(a, "type=")), boolInt(!strings.HasPrefix(b, "type=")))
	})
	var owners []string
	modeGiven, hasData := false, false
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		if value, err = unvis(value); err != nil {
			return err
		}
		modeGiven = modeGiven || key == "mode"
		hasData = hasData || key == "size" && value != "0"
		switch do, known := planWords[key]; {
		case known:
			err = do(p, e, s, value)
		case strings.HasPrefix(key, "xattr."):
			s.xattrs = append(s.xattrs, image.Xattr{Name: strings.TrimPrefix(key, "xattr."), Value: []byte(value)})
		case key == "uname" || key == "gname":
			owners = append(owners, key)
		case key == "optional", w == "flags=none", slices.Contains(planIgnored, key):
		default:
			err = errors.New("unknown word")
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", name, w, err)
		}
	}
	for _, o := range owners { // of whom only the number is known here
		number := o[:1] + "id="
		if !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, number) }) {
			return fmt.Errorf("%s: %s without %s", name, o, strings.TrimSuffix(number, "="))
		}
	}
	if hasData && s.from == nil {
		return fmt.Errorf("%s: has a size, want contents=FILE, or the file in a directory that the plan is for", name)
	}
	if s.trusted && s.from == nil && s.xattrs == nil && s.flags == 0 {
		e.Source = p.plain
	}
	return p.settled(name, e, isNew, modeGiven)
}

// settled ends an entry that has all its words.
func (p *plan) settled(name string, e *mkfs.Entry, isNew, modeGiven bool) error {
	if e.IsDir() {
		if isNew && !modeGiven {
			e.Mode |= 0o111
		}
		if !strings.Contains(name, "/") && name != "." {
			p.open = append(p.open, e)
		}
	}
	switch {
	case (len(e.Entries) > 0 || e == p.root) && !e.IsDir():
		return fmt.Errorf("%s: is a directory, want type=dir", name)
	case e.IsDir() && e.Several:
		return fmt.Errorf("%s: has other names, and is to be a directory", name)
	case e.Subvol && !e.IsDir():
		return fmt.Errorf("%s: subvol, want type=dir", name)
	case e.Mode&format.S_IFMT == format.S_IFLNK && e.Target == "":
		return fmt.Errorf("%s: a symbolic link, want link=TARGET", name)
	}
	return nil
}

// find is the entry of a name, which is made if it is not there, with the directories above.
func (p *plan) find(name string) (*mkfs.Entry, error) {
	e := p.root
	parts := strings.Split(strings.Trim(gopath.Clean("/"+name), "/"), "/")
	if !strings.Contains(name, "/") {
		e = p.open[len(p.open)-1]
	}
	for i, part := range parts {
		switch {
		case part == "":
			return e, nil // the directory itself
		case !e.IsDir():
			return nil, fmt.Errorf("%s: %s is no directory", name, e.Name)
		}
		next := p.child(e, part)
		if next == nil {
			next = p.entry(part)
			if i < len(parts)-1 {
				next.Mode = format.S_IFDIR | 0o755
			}
			p.add(e, next)
		}
		e = next
	}
	return e, nil
}

// hardlink makes an entry another name of a path.
func (p *plan) hardlink(e *mkfs.Entry, _ *source, path string) error {
	first := p.root
	for part := range strings.SplitSeq(strings.Trim(gopath.Clean("/"+path), "/"), "/") {
		if first = p.child(first, part); first == nil {
			return errors.New("there is no such path before this line")
		}
	}
	if first.Link != nil {
		first = first.Link
	}
	if first == e || first.IsDir() {
		return errors.New("want a path that is no directory, and another one")
	}
	e.LinkTo(first)
	if first.Source == nil { // a name in its directory, and not in that of e
		e.Source = &source{from: hostFile{path: hostPath(first)}, trusted: true}
	}
	return nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// unvis reads \ooo and the letters of vis(3).
func unvis(s string) (string, error) {
	if !strings.Contains(s, "\\") {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		rest := s[i+1:]
		if len(rest) >= 3 {
			if n, err := strconv.ParseUint(rest[:3], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		letters, bytes := "sntrab0vf\\#", " \n\t\r\a\b\x00\v\f\\#"
		k := -1
		if rest != "" {
			k = strings.IndexByte(letters, rest[0])
		}
		if k < 0 {
			return "", fmt.Errorf("bad escape in %q, want \\ and three octal digits", s)
		}
		b.WriteByte(bytes[k])
		i++
	}
	return b.String(), nil
}
