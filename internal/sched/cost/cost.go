// Package cost is the table of what the write path's work costs a CPU in virtual time. The write
// path says what it does (t.Spend(cost.Copy, 4096)); the simulator looks the price up. In the real
// runtime a Spend is one nil check.
//
// The figures are of the reference machine: a shared x86-64 with 2 cores, Linux 6.18, fio 3.33 and
// Go 1.26. They are measured where the source says so or names a benchmark, and estimates where it
// says so. Table.CPU multiplies all of them: that one number describes a slower or faster machine.
// A study that compares with published figures calibrates it and does not trust the rest.
package cost

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"btrlab/internal/sched"
)

// The costs.
const (
	Issue   sched.Cost = iota // what fio itself does for a request
	Syscall                   // entry, file lookup, iov setup and exit of one write(2) or read(2)
	Copy                      // a byte between user and page
	// a byte between page and an image in memory, which is the device and not below a model
	Media
	// a place that no cache of the CPU has, before what lies there is moved
	Cold
	Page      // finding a page in its mapping, and taking and putting a reference
	PageAlloc // a page that is new in the cache: allocation and insertion
	Lock      // an uncontended lock and unlock
	Line      // a cache line that another CPU wrote last
	RangeTree // one change of an io tree
	// a change of a range whose state is at hand, by cached_state: no walk of the tree
	RangeState
	Search   // one level of a tree search
	Item     // one item inserted into, or deleted from, a leaf
	Checksum // a byte of crc32c
	Reserve  // data and metadata reservation of a batch
	Submit   // building and submitting a bio
	Vec      // one page of a bio
	Complete // a bio's end
	Ordered  // making or finishing an ordered extent, without its tree work
	Wakeup   // the waker's part of a wake-up
	Kick     // what that takes longer when a CPU is idle, which is woken as well
	Switch   // a context switch
	IdleExit // from a wake-up to the first instruction on an idle CPU
	// what a request through io_uring costs above a system call of its own
	Ring
	RingReap // taking completions from the ring's memory
	Punt     // giving a request to a worker of the ring, without the wake-up
	AIO      // what io_submit costs for a request above a system call of its own
	// a system call that asks for completions: io_getevents, or io_uring_enter that only waits
	Events
	Field // a field of an item in a leaf, read or written
	// copying a tree block: its allocation, the bytes, the state of its range
	CopyBlock
	CheckBlock // looking at a tree block before it is written: the tree checker
	Count      // how many there are
)

// Entry is one row of the table.
type Entry struct {
	Name string  `json:"name"`
	Unit string  `json:"unit"`
	Nano float64 `json:"ns"` // per unit
	// Source says where the figure comes from.
	Source string `json:"source"`
	// Fixed entries are not multiplied by Table.CPU.
	Fixed bool `json:"-"`
}

// Table has the price of each cost.
type Table struct {
	Entries [Count]Entry
	// CPU multiplies the entries: 2 is a machine half as fast.
	CPU float64
}

var defaults = [Count]Entry{
	Issue:      {Name: "issue", Unit: "request", Nano: 500, Source: "estimate: fio with its null engine makes about 2 M requests a second on one core"},
	Syscall:    {Name: "syscall", Unit: "call", Nano: 900, Source: "estimate: what the rows below leave of 4.3 us, a 4 KiB write of the seed 001 job (measured: btrfs nodatacow, psync, 231k/s)"},
	Copy:       {Name: "copy", Unit: "byte", Nano: 0.136, Source: "measured: copy 4 KiB into mapped memory, random, 1.8 M/s on one core"},
	Media:      {Name: "media", Unit: "byte", Nano: 0.136, Source: "as copy: the same move, into a part of the image that was not used lately"},
	Cold:       {Name: "cold", Unit: "place", Nano: 0, Source: "none: the copies of the row before were of 4 KiB at random places, so it is in there"},
	Page:       {Name: "page", Unit: "page", Nano: 60, Source: "estimate, a part of pagecache BenchmarkGrab"},
	PageAlloc:  {Name: "page-alloc", Unit: "page", Nano: 350, Source: "estimate: zone allocation and xarray insertion"},
	Lock:       {Name: "lock", Unit: "lock+unlock", Nano: 15, Source: "measured: sync.Mutex 14-16 ns uncontended"},
	Line:       {Name: "line", Unit: "transfer", Nano: 100, Source: "estimate: transfer of a contended lock"},
	RangeTree:  {Name: "range-tree", Unit: "change", Nano: 250, Source: "extentio BenchmarkLockSetUnlock and its budget: three changes in under 700 ns"},
	RangeState: {Name: "range-state", Unit: "change", Nano: 0, Source: "none: the changes around it, whose budget it is a part of, have it in their price"},
	Search:     {Name: "search", Unit: "level", Nano: 200, Source: "ctree BenchmarkSearch, a tree of three levels"},
	Item:       {Name: "item", Unit: "item", Nano: 400, Source: "estimate from ctree BenchmarkInsertDelete"},
	Checksum:   {Name: "checksum", Unit: "byte", Nano: 0.132, Source: "measured: crc32c of cold 4 KiB blocks, 7.6 GB/s"},
	Reserve:    {Name: "reserve", Unit: "batch", Nano: 300, Source: "estimate: btrfs against xfs in the seed 001 job, about 0.3 us"},
	Submit:     {Name: "submit", Unit: "bio", Nano: 1500, Source: "estimate: the block layer's part of an O_DIRECT pwrite over memory (measured: 87k/s by 8 tasks)"},
	Vec:        {Name: "vec", Unit: "page", Nano: 100, Source: "estimate: page flags and bio_add_page"},
	Complete:   {Name: "complete", Unit: "bio", Nano: 1500, Source: "estimate, as submit: interrupt and end of I/O"},
	Ordered:    {Name: "ordered", Unit: "extent", Nano: 1000, Source: "ordered BenchmarkAddRemove, and its work items"},
	Wakeup:     {Name: "wakeup", Unit: "wake-up", Nano: 1000, Source: "estimate: try_to_wake_up with an interrupt to another CPU"},
	Kick:       {Name: "kick", Unit: "wake-up", Nano: 0, Source: "none: the row before is of a wake-up with an interrupt"},
	Switch:     {Name: "switch", Unit: "switch", Nano: 1500, Source: "estimate: a switch with a cold stack, 1-2 us"},
	IdleExit:   {Name: "idle-exit", Unit: "wake-up", Nano: 5000, Source: "estimate: 2-50 us, by the depth of the sleep", Fixed: true},
	Ring:       {Name: "ring", Unit: "request", Nano: 335, Source: "measured: the seed 001 job on btrfs nodatacow, io_uring 210k/s against psync 231k/s: 0.43 us with ring-reap and three locks"},
	RingReap:   {Name: "ring-reap", Unit: "call", Nano: 50, Source: "estimate: two loads of what another task stored, and a store"},
	Punt:       {Name: "punt", Unit: "request", Nano: 300, Source: "estimate: a copy of the request's state, and a work queued"},
	AIO:        {Name: "aio", Unit: "request", Nano: 250, Source: "measured: the seed 001 job, libaio 197k/s against psync 231k/s: 0.75 us with events"},
	Field:      {Name: "field", Unit: "field", Nano: 8, Source: "estimate: an access through the pages of a tree block, with its bounds"},
	Events:     {Name: "events", Unit: "call", Nano: 500, Source: "estimate: as syscall, without a file"},
	CopyBlock:  {Name: "copy-block", Unit: "tree block", Nano: 17000, Source: "measured: btrfs_force_cow_block() in seed 003's job on Linux 6.18 without locks and wake-ups, 16 to 18 us (calibrate --linux)"},
	CheckBlock: {Name: "check-block", Unit: "tree block", Nano: 24000, Source: "measured: btree_csum_one_bio() in that job, 26 us a block that is written, less the checksum's 2"},
}

// Default is the table of the reference machine.
func Default() Table { return Table{Entries: defaults, CPU: 1} }

// Nanos returns the cost of n units of c.
func (t *Table) Nanos(c sched.Cost, n int) int64 {
	e := &t.Entries[c]
	v := e.Nano * float64(n)
	if !e.Fixed {
		v *= t.CPU
	}
	return int64(v)
}

// Set changes an entry, or with the name "cpu" the factor.
func (t *Table) Set(name string, v float64) error {
	if v < 0 {
		return fmt.Errorf("cost %g, want at least 0", v)
	}
	if name == "cpu" {
		t.CPU = v
		return nil
	}
	i := slices.IndexFunc(t.Entries[:], func(e Entry) bool { return e.Name == name })
	if i < 0 {
		names := []string{"cpu"}
		for _, e := range t.Entries {
			names = append(names, e.Name)
		}
		return fmt.Errorf("no entry %q, want one of %s", name, strings.Join(names, ", "))
	}
	t.Entries[i].Nano = v
	t.Entries[i].Source = "set"
	return nil
}

// Load takes the entries that a calibration has measured: JSON, {"costs": [{"name": "copy", "ns":
// 0.2}, ...]}. An entry with "measured": false, and one that is missing, keeps its value.
func (t *Table) Load(r io.Reader) error {
	var f struct {
		Costs []struct {
			Name     string
			NS       *float64
			Measured *bool
		}
	}
	if err := json.NewDecoder(r).Decode(&f); err != nil {
		return fmt.Errorf("bad table of costs, have %w want JSON", err)
	}
	if len(f.Costs) == 0 {
		return errors.New(`bad table of costs, have no "costs" want at least one`)
	}
	for _, e := range f.Costs {
		switch {
		case e.Measured != nil && !*e.Measured:
			continue
		case e.NS == nil:
			return fmt.Errorf(`bad table of costs, have entry %q without "ns" want one`, e.Name)
		}
		if err := t.Set(e.Name, *e.NS); err != nil {
			return fmt.Errorf("bad table of costs, %w", err)
		}
	}
	return nil
}

// Duration is Nanos as a time.
func (t *Table) Duration(c sched.Cost, n int) time.Duration { return time.Duration(t.Nanos(c, n)) }
