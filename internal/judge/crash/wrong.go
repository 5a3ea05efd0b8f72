package crash

import (
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
)

// Wrong orders. Each changes the order in which the device got the writes of a recording, to the
// one of a file system that makes the mistake.

// Wrongs are the names of the wrong orders.
func Wrongs() []string { return []string{"late-data", "no-flush", "super-first"} }

type order func(l []dm.Record, sb *format.Super) []dm.Record

// wrongs are the orders by name; "" changes nothing.
var wrongs = map[string]order{
	"":            func(l []dm.Record, _ *format.Super) []dm.Record { return l },
	"no-flush":    noFlush,
	"super-first": superFirst,
	"late-data":   lateData,
}

func checkWrong(name string) error {
	if _, ok := wrongs[name]; !ok {
		return fmt.Errorf("bad wrong order, have %q want one of %s", name, strings.Join(Wrongs(), ", "))
	}
	return nil
}

// noFlush: the flushes are not sent.
func noFlush(l []dm.Record, _ *format.Super) []dm.Record {
	return slices.DeleteFunc(slices.Clone(l), func(r dm.Record) bool { return r.Kind == dm.RecordFlush })
}

// superFirst: a superblock is written before the tree blocks that it leads to, in one flush with
// them.
func superFirst(l []dm.Record, _ *format.Super) []dm.Record {
	return reorder(l, func(list []dm.Record, super int) int {
		flushes := 0
		for i := super - 1; i >= 0; i-- {
			if list[i].Kind == dm.RecordFlush {
				if flushes++; flushes == 2 {
					return i + 1
				}
			}
		}
		return 0
	})
}

// reorder moves each primary superblock to the index that to says, and mends the flushes.
func reorder(l []dm.Record, to func(list []dm.Record, super int) int) []dm.Record {
	l = slices.Clone(l)
	for i := range l {
		if l[i].Kind != dm.RecordWrite || l[i].Off != format.SuperOffset {
			continue
		}
		at, r := to(l, i), l[i]
		copy(l[at+1:i+1], l[at:i])
		l[at] = r
	}
	return mend(l)
}

// mend makes every flush cover what comes before it.
func mend(l []dm.Record) []dm.Record {
	for i := range l {
		if l[i].Kind == dm.RecordFlush {
			l[i].Safe = i
		}
	}
	return l
}

// lateData: a commit does not wait for the data that its trees point at: it is written after the
// superblock.
func lateData(l []dm.Record, sb *format.Super) []dm.Record {
	var out, late []dm.Record
	flushes := 0
	for _, r := range l {
		switch {
		case r.Kind == dm.RecordWrite && kindOf(&r, sb) == kindData:
			late = append(late, r)
			flushes = 0
			continue
		case r.Kind == dm.RecordFlush:
			flushes++
		}
		out = append(out, r)
		if r.Kind == dm.RecordMark && strings.HasPrefix(r.Mark, "end") && flushes >= 2 {
			out, late = append(out, late...), nil
		}
	}
	return mend(append(out, late...))
}

// kind is the kind of a write.
type kind uint8

const (
	kindData kind = iota
	kindSuper
	kindTree
)

// isSuper reports whether a write is of a superblock.
func isSuper(r *dm.Record) bool {
	for i := range format.SuperMirrorMax {
		if uint64(r.Off) == format.SuperMirror(i) && len(r.Data) == format.SuperSize {
			return true
		}
	}
	return false
}

// kindOf looks at the bytes of a write.
func kindOf(r *dm.Record, sb *format.Super) kind {
	if isSuper(r) {
		return kindSuper
	}
	if n := format.Node(r.Data); len(n) >= int(sb.NodeSize) && n.FSID() == sb.TreeFSID() && sb.CsumType.BlockMatch(n[:sb.NodeSize]) {
		return kindTree
	}
	return kindData
}
