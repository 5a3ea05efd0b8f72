package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/sched"
)

// An attribute is a register: it has a value that somebody has set, and not one that another set,
// begun after the first had returned, has replaced. After a power cut it is judged in the same way
// by the sets that an fsync has made durable, as the oracle judges bytes (oracle.CheckFsync).

// xattrName is the attribute that OpSetxattr sets.
const xattrName = "user.a"

// set is a change of an attribute that has begun. One that has not returned ends never.
type set struct {
	kind       OpKind
	value      string
	start, end int64
}

// setAttr carries out a chmod or a setxattr that begins at start.
func (r *run) setAttr(t *sched.Task, x *subject, o Op, start int64) error {
	x.sets = append(x.sets, set{o.Kind, o.Value, start, oracle.Never})
	if o.Kind == OpSetxattr {
		return r.fs.Setxattr(t, x.name, xattrName, []byte(o.Value))
	}
	mode, err := strconv.ParseUint(o.Value, 8, 32)
	if err != nil {
		return errno.EINVAL
	}
	return r.fs.Chmod(t, x.name, uint32(mode))
}

// attr is the value of an attribute; "" is an attribute that is not there.
func attr(t *sched.Task, n *fs.Node, kind OpKind) (string, error) {
	if kind == OpChmod {
		return fmt.Sprintf("%o", n.Attr(t).Mode&0o7777), nil
	}
	v, err := n.Getxattr(t, xattrName)
	if errors.Is(err, errno.ENOENT) {
		return "", nil
	}
	return string(v), err
}

// lostAttr says which attribute of the file has a value that no order explains; "" is none. With
// syncs, attr gives what a power cut at time at has left of the file, and what returned before one
// of them began is durable. Without, everything has returned.
func (x *subject) lostAttr(attr func(OpKind) (string, error), syncs []oracle.Sync, at int64) (string, error) {
	for _, kind := range []OpKind{OpChmod, OpSetxattr} {
		if !slices.ContainsFunc(x.sets, func(s set) bool { return s.kind == kind }) {
			continue
		}
		have, err := attr(kind)
		if err != nil {
			return "", err
		}
		if !explained(x.sets, kind, map[OpKind]string{OpChmod: "644", OpSetxattr: ""}[kind], have, syncs, at) {
			return fmt.Sprintf("%s of %s has left %q", kind, x.name, have), nil
		}
	}
	return "", nil
}

// explained reports whether an attribute can have the value have; first is that before all sets.
func explained(sets []set, kind OpKind, first, have string, syncs []oracle.Sync, at int64) bool {
	durable := func(s set) bool {
		if syncs == nil {
			return s.end <= at
		}
		return slices.ContainsFunc(syncs, func(y oracle.Sync) bool { return s.end < y.Start })
	}
	for _, s := range append(slices.Clone(sets), set{kind: kind, value: first, start: -1, end: -1}) {
		if s.kind != kind || s.value != have || s.start > at {
			continue
		}
		if !slices.ContainsFunc(sets, func(o set) bool { return o.kind == kind && s.end < o.start && durable(o) }) {
			return true
		}
	}
	return false
}
