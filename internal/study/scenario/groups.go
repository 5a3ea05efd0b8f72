package scenario

import (
	"slices"
	"strings"
)

// Group is the scenarios about one thing, for lists that people read.
type Group struct {
	Name  string
	About string
	// Names are scenarios, or the beginning of their names when they end with "-*"; a scenario that
	// is named in full belongs there and nowhere else.
	Names []string
}

// Groups are the groups in the order of lists. Each scenario is in one.
var Groups = []Group{
	{"Writes and truncates", "buffered writes beside a change of the file's size",
		strings.Fields("truncate-race truncate-into truncate-above truncate-grow two-writers-truncate truncate-rewrite long-write-truncate")},
	{"Two writers", "buffered writes beside each other",
		strings.Fields("two-writers-* writer-eof-inside two-appends")},
	{"Three writers", "what a policy remembers of two writers, and a third",
		strings.Fields("three-*")},
	{"Holes, allocation, reads", "a buffered write beside a punch, a fallocate or a reader",
		strings.Fields("writer-punch long-write-punch writer-fallocate prealloc-punch writer-reader")},
	{"The source of a write", "page faults and short copies",
		strings.Fields("mmap-source short-copy")},
	{"Writeback", "pages on their way to the device",
		strings.Fields("stable-pages ordered-retry page-state-* truncate-writeback punch-writeback grow-writeback append-writeback reader-writeback page-and-extent nocow-rewrite")},
	{"Space, quota, throttling", "what a write waits for besides locks",
		strings.Fields("enospc balance-dirty range-and-space quota-limit direct-and-space direct-full")},
	{"Snapshots and reflinks", "extents that two files share",
		strings.Fields("nocow-snapshot snapshot-writeback reflink-* unaligned-snapshot setxattr-snapshot nowait-dio-snapshot")},
	{"Fsync", "what is promised to be on the device",
		strings.Fields("fsync-writer fsync-writeback nocow-fsync truncate-fsync direct-fsync link-fsync unlink-fsync chmod-fsync setxattr-fsync direct-dsync")},
	{"The log tree", "fsync without a commit, and its replay",
		strings.Fields("log-* direct-log")},
	{"Names and attributes", "a file that is renamed or removed while it is written",
		strings.Fields("unlink-write rename-over-write")},
	{"NOWAIT, buffered", "writes that must not sleep",
		strings.Fields("nowait-*")},
	{"NOWAIT, direct", "direct writes that must not sleep",
		strings.Fields("nowait-dio-*")},
	{"io_uring", "requests of a ring and its workers",
		strings.Fields("ring-*")},
	{"Direct I/O", "writes and reads past the page cache",
		strings.Fields("direct-*")},
	{"RAID5", "the parity of writes of one full stripe",
		strings.Fields("stripe-*")},
	{"Sectors", "direct writes that are not whole blocks",
		strings.Fields("unaligned-*")},
}

// Group is the group of the scenario: the one that names it, else the one with the longest
// beginning of its name. A scenario that is not in the table has none.
func (s *Scenario) Group() (g Group, ok bool) {
	best := -1
	for _, x := range Groups {
		if slices.Contains(x.Names, s.Name) {
			return x, true
		}
		for _, n := range x.Names {
			begin, open := strings.CutSuffix(n, "*")
			if open && strings.HasPrefix(s.Name, begin) && len(begin) > best {
				g, best = x, len(begin)
			}
		}
	}
	return g, best >= 0
}

// Grouped are the scenarios by their groups.
func Grouped() map[string][]*Scenario {
	m := map[string][]*Scenario{}
	for _, s := range catalog {
		g, _ := s.Group()
		m[g.Name] = append(m[g.Name], s)
	}
	return m
}
