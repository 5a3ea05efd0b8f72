package scenario

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/sched"
)

// What the oracle of bytes and sizes does not know: names, and who has them. They are judged by
// versions: the names before each change, and after the last. All changes are one task's, so that
// their order is known.

// naming is a rename, a link or an unlink that has begun. Start and end are 0 of one before the
// tasks; one that has not returned ends never.
type naming struct {
	kind       OpKind
	from, to   string
	start, end int64
}

// named says that the names of the scenario are judged.
func (r *run) named() bool { return r.second.f != nil || len(r.names) > 0 }

// changeName carries out a change of names that begins at start.
func (r *run) changeName(t *sched.Task, o Op, start int64) error {
	r.names = append(r.names, naming{o.Kind, o.From, o.To, start, oracle.Never})
	switch o.Kind {
	case OpLink:
		return r.fs.Link(t, o.From, o.To)
	case OpUnlink:
		return r.fs.Unlink(t, o.From)
	}
	return r.fs.Rename(t, o.From, o.To)
}

// versionOf is which file each name leads to.
type versionOf map[string]*subject

// versions are the names before each change, and after the last.
func (r *run) versions() []versionOf {
	l := []versionOf{{}}
	for _, x := range r.subjects() {
		l[0][x.name] = x
	}
	for _, n := range r.names {
		v := maps.Clone(l[len(l)-1])
		if n.kind != OpUnlink {
			v[n.to] = v[n.from]
		}
		if n.kind != OpLink {
			delete(v, n.from)
		}
		l = append(l, v)
	}
	return l
}

// namesIn are the names in x, of those that a version has.
func (r *run) namesIn(t *sched.Task, x *fs.FS) (versionOf, error) {
	have := versionOf{}
	for _, v := range r.versions() {
		for name := range v {
			at, err := x.Lstat(t, name)
			switch {
			case errors.Is(err, errno.ENOENT):
			case err != nil:
				return nil, err
			case at.Ino == r.first.f.Ino():
				have[name] = &r.first
			case r.second.f != nil && at.Ino == r.second.f.Ino():
				have[name] = &r.second
			default:
				return nil, fmt.Errorf("%s is inode %d, which is neither file", name, at.Ino)
			}
		}
	}
	return have, nil
}

// recoveredNames judges the names after crash i, which left c, and returns them. Each leads where
// it led before or after one of the changes that had begun, and each file has as many names as it
// had then. An fsync of a file promises the names that it had when that began, a sync all names.
func (r *run) recoveredNames(c *recovery, i int) (versionOf, error) {
	have := c.names
	all := r.versions()
	done := func(s oracle.Sync) (n int) { // changes that had returned when s began
		for _, m := range r.names {
			if m.end < s.Start {
				n++
			}
		}
		return n
	}
	hi := 0
	for _, m := range r.names {
		if m.start <= r.crashes[i].sync.End {
			hi++
		}
	}
	since := map[*subject]int{}
	for _, c := range r.crashes[:i+1] {
		for _, s := range r.subjects() {
			if c.of == nil || c.of == s {
				since[s] = max(since[s], done(c.sync))
			}
		}
	}
	if text := r.lostName(have, all[:hi+1], since); text != "" {
		return nil, errors.New("after fsync and a crash " + text)
	}
	return have, nil
}

// lostName says what no version explains of the names that a crash has left, "" is nothing: all are
// the versions up to the crash, since says from which on each file's names are durable.
func (r *run) lostName(have versionOf, all []versionOf, since map[*subject]int) string {
	for _, v := range all {
		for name := range v {
			lo := 0
			for s, n := range since {
				if all[n][name] == s {
					lo = max(lo, n)
				}
			}
			if !slices.ContainsFunc(all[lo:], func(v versionOf) bool { return v[name] == have[name] }) {
				return fmt.Sprintf("%s is %s", name, r.whose(have[name]))
			}
		}
	}
	for _, s := range r.subjects() {
		count := func(v versionOf) (n int) {
			for _, x := range v {
				if x == s {
					n++
				}
			}
			return n
		}
		if n := count(have); !slices.ContainsFunc(all[since[s]:], func(v versionOf) bool { return count(v) == n }) {
			return fmt.Sprintf("%s has %d names", r.whose(s), n)
		}
	}
	return ""
}

// whose names a file, for a reader.
func (r *run) whose(x *subject) string {
	switch x {
	case &r.first:
		return "the first file"
	case &r.second:
		return "the second file"
	}
	return "gone"
}
