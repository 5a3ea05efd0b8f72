// Package check judges a btrfs image with a walker of its own. It shares no code with the tree,
// transaction or file packages that write images, only the on-disk format: the judge does not live
// with the accused. It never writes. A repair (package repair) stands above it: Examine shows what
// a check has seen, and the result of a repair is judged by another Check before it is written.
//
// The walk goes from the superblock to the chunk tree, the root tree, and every tree that names.
// Each tree block is read from every mirror once, judged by itself (the format package's tree
// checker) and against what its parent says. References met on the way are collected, then compared
// with the extent tree in one sorted merge; data checksums are verified by two workers meanwhile.
// Files are judged tree by tree.
//
// Invariants:
//   - a block that breaks a rule of its header or keys is not descended into, so no image makes the
//     walk endless: levels fall by one and key ranges shrink at each step;
//   - nothing is decoded before the tree checker passed it.
//
// Model: btrfs-progs check (original mode) and labs/reference 10.6. Differences: a copy of a block
// or superblock that is bad while another is good is a finding here.
package check

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"sort"
	"sync"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Options of a check.
type Options struct {
	// Devices are the other devices of a file system that has several.
	Devices []blockdev.Device
	// MaxMemory, if not 0, bounds the memory for extents, references and checksums, in bytes: they
	// are judged by ranges of block groups, and the trees of files read again for each range. What
	// is held for each tree block, name and inode is not bounded by it.
	MaxMemory uint64
	// Copies reads every copy of everything, also of data without checksums, and judges no more:
	// names, references and free space are left.
	Copies bool
	// NoData leaves the data checksums unread.
	NoData bool
	// Progress, if any, is called now and then with what is looked at and how much has been done:
	// tree blocks of all, and in the phase "data" bytes. Total is 0 as long as nobody knows. Calls
	// come one at a time, from any goroutine.
	Progress func(phase string, done, total uint64)
}

// Stats counts what was looked at.
type Stats struct {
	TreeBlocks, DataExtents, Inodes, Files, Dirs uint64
	DataBytes                                    uint64 // verified against checksums
}

// Result of a check: Clean is len(Findings) == 0. Notes do not make an image bad.
type Result struct {
	Clean    bool      `json:"clean"`
	Findings []Finding `json:"findings"`
	Notes    []string  `json:"notes,omitempty"`
	Stats    Stats     `json:"-"`
}

// findingsMax bounds what is kept; the rest is counted in a note.
const findingsMax = 10000

// checker is the judge: what it has seen, and what it goes by.
type checker struct {
	Seen // Findings under mu
	o    Options

	mu        sync.Mutex // protects the findings and what follows, which data workers write
	dropped   int
	badBlocks map[Stripe]bool // tree blocks of BadCopies
	notes     []string
	phaseNow  string

	noData  bool // the data is not to be read
	stats   Stats
	walks   uint32
	scratch []byte

	treeBlocks uint64           // extents that are tree blocks
	haveRefs   []ref            // what the extent tree lists
	owned      map[owned]uint64 // what trees have allocated, in bytes, for simple quotas
	csums      []Span           // ascending, merged
	csumEnd    uint64           // where the checksums so far end
	stray      []strayCsums

	// sliced: with Options.MaxMemory, what there is of each extent is held for a range at a time.
	sliced     bool
	items      map[uint64]uint64 // of the extent tree, by address
	fulls      map[uint64]bool   // blocks with FULL_BACKREF
	freeWhole  bool
	sliceReach []reach // of data in the range
}

// strayCsums are checksums of a range where the extent tree has no data.
type strayCsums struct {
	Span
	where Place
}

// Check judges the image on dev. The error is for a device that cannot be read at all and for a
// file system that is sound as far as it goes but has a feature this program does not know
// (*format.UnsupportedError); all else is a Finding.
func Check(t *sched.Task, dev blockdev.Device, o Options) (Result, error) {
	r, _, err := judged(t, dev, o)
	return r, err
}

// judged is Check, with what it knows afterwards.
func judged(t *sched.Task, dev blockdev.Device, o Options) (Result, *checker, error) {
	c := &checker{Seen: Seen{Image: Image{Task: t, Roots: map[uint64]Root{}}, Visited: map[uint64]uint32{}, Spared: map[Place]bool{}, Broken: map[string]bool{}}, o: o, noData: o.NoData}
	if c.sliced = o.MaxMemory > 0; c.sliced {
		c.items, c.fulls = map[uint64]uint64{}, map[uint64]bool{}
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(int64(min(o.MaxMemory, math.MaxInt64))))
	}
	for _, d := range append([]blockdev.Device{dev}, o.Devices...) {
		c.Devs = append(c.Devs, &Device{Device: d})
	}
	err := c.run()
	c.explain()
	sort.SliceStable(c.Findings, func(i, j int) bool { return ruleOrder[c.Findings[i].Rule] < ruleOrder[c.Findings[j].Rule] })
	if c.dropped > 0 {
		c.note("%d more findings are not shown", c.dropped)
	}
	r := Result{Clean: len(c.Findings) == 0, Findings: c.Findings, Notes: c.notes, Stats: c.stats}
	if r.Findings == nil {
		r.Findings = []Finding{}
	}
	return r, c, err
}

var errStop = errors.New("stop")

func (c *checker) run() error {
	c.phase("superblock")
	if err := c.checkSuper(); err != nil {
		if errors.Is(err, errStop) {
			return nil
		}
		return err
	}
	c.scratch = make([]byte, c.Super.NodeSize)
	c.phase("chunks")
	if err := c.checkChunks(); err != nil {
		if errors.Is(err, errStop) {
			return nil
		}
		return err
	}
	c.phase("roots")
	c.loadRoots()
	c.checkDevices()
	c.phase("extents")
	c.loadExtents()
	c.loadGroups()
	everything := Span{0, ^uint64(0)}
	if c.o.Copies {
		c.runCopies(everything)
		return nil
	}
	if c.ExtentsWhole {
		c.checkGroups()
		if !c.sliced {
			c.checkExtents(0)
			c.checkUsed()
		}
	}
	c.phase("free space")
	c.checkFreeSpace()
	data := c.startData()
	c.phase("checksums")
	c.loadCsums(data)
	c.phase("files")
	c.checkTrees()
	c.phase("references")
	if c.sliced {
		c.checkSlices()
	} else {
		c.checkRefs(everything)
	}
	c.checkQuota()
	c.phase("logs")
	c.checkLog(data)
	c.phase("data")
	data.wait()
	c.blameData(data)
	if !c.noData && !c.sliced {
		c.checkParity(everything)
	}
	return nil
}

// findErr adds a finding from what the tree checker says.
func (c *checker) findErr(rule string, place Place, err error) {
	var e *format.CorruptError
	if !errors.As(err, &e) {
		c.find(rule, place, words("%v", err), nil)
		return
	}
	place = on(AtTree, e.Root).with(AtBlock, e.Bytenr)
	switch {
	case e.Block == "superblock":
		place = on(AtBytenr, e.Bytenr)
	case e.Slot >= 0:
		place = place.with(AtSlot, uint64(e.Slot))
	}
	if e.Have == "" {
		c.find(rule, place, Words(e.Reason()), nil)
		return
	}
	if e.OfFile {
		place = place.with(apart|AtIno, e.Ino).with(AtFileOffset, e.FileOffset)
	}
	f := Finding{Rule: rule, Place: place, What: e.What, Have: Words(e.Have)}
	if e.Want != "" {
		f.Want = Words(e.Want)
	}
	c.add(f)
}

func (c *checker) note(text string, args ...any) {
	c.mu.Lock()
	c.notes = append(c.notes, fmt.Sprintf(text, args...))
	c.mu.Unlock()
}

func (c *checker) phase(name string) {
	c.mu.Lock()
	c.phaseNow = name
	c.mu.Unlock()
	c.step()
}

// step reports how many tree blocks have been read. How many there are is known from the extent
// tree on.
func (c *checker) step() {
	if c.o.Progress == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phaseNow != "data" {
		c.o.Progress(c.phaseNow, c.stats.TreeBlocks, c.treeBlocks)
	}
}

// stepData reports how much data has been verified, once nothing else is left to wait for.
func (c *checker) stepData(done, total uint64) {
	if c.o.Progress == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phaseNow == "data" {
		c.o.Progress(c.phaseNow, done, total)
	}
}

// treeName is a tree id as readers know it: negative ones signed.
func treeName(id uint64) string { return fmt.Sprintf("root=%d", int64(id)) }
