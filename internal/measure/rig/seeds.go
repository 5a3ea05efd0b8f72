package rig

import (
	_ "embed"
	"fmt"
	"strings"

	"btrlab/internal/iopath/policy"
	"btrlab/internal/measure/experiment"
)

// Seed000 is the job of seed 000; testdata/fio/seed-000.fio is the same file for people.
//
//go:embed seed-000.fio
var Seed000 string

// Seed001 is the job of seed 001; testdata/fio/seed-001.fio is the same file for people.
//
//go:embed seed-001.fio
var Seed001 string

// Seed003 is the job of seed 003; testdata/fio/seed-003.fio is the same file for people.
//
//go:embed seed-003.fio
var Seed003 string

// Seed004 is the job of seed 004; testdata/fio/seed-004.fio is the same file for people.
//
//go:embed seed-004.fio
var Seed004 string

// Seed is a published experiment as compare runs it.
type Seed struct {
	Name  string // "001"
	Title string // of the report
	Job   string // the fio job as it was posted
	// Rows are what it compares; Baseline is the row that ratios are to, and Pairs are the ratios
	// that were published or aimed at.
	Rows     []experiment.Variant
	Baseline string
	Pairs    [][2]string
	// Ablation are further rows: the baseline's successor without one of its patches each.
	Ablation []experiment.Variant
	// Model is the latency model that the job needs to show anything; empty is none.
	Model string
	// Cached says that the job is meant to stay in the page cache: nothing is written back while it
	// runs, unless --dirty-limit says so.
	Cached bool
	// OwnFiles says that each task has a COW file of its own, and FileSize is the bytes of each
	// that compare makes them unless --size says more.
	OwnFiles bool
	FileSize int64
}

// Patches000 are the toggles of seed 000's eight patches, in the order of the series.
func Patches000() []string { return patches("seed 000,") }

// Patches003 are those of seed 003's six.
func Patches003() []string { return patches("seed 003,") }

func patches(source string) (names []string) {
	for x := range policy.Switches() {
		if t := x.Toggle(); strings.HasPrefix(t.Source, source) {
			names = append(names, t.Name)
		}
	}
	return names
}

// Seeds are the published experiments, by name.
func Seeds() []Seed {
	const patch, none = "nowait-6.1", "nowait-6.1!NOWAIT_BUFFERED"
	set := func(kv ...[2]string) [][2]string { return kv }
	libaio, uring, four := [2]string{"ioengine", "libaio"}, [2]string{"ioengine", "io_uring"}, [2]string{"iodepth", "4"}
	locking := Seed{Name: "002", Title: "Locked versus unlocked writes", Job: Seed002}
	for _, p := range policy.Names() {
		locking.Rows = append(locking.Rows, experiment.Variant{Name: p, Policy: p})
	}
	const before, after = "nowait-5.8", "nowait-5.19"
	direct := Seed{Name: "000", Title: "NOWAIT direct requests through io_uring", Job: Seed000, Baseline: "before", Pairs: [][2]string{{"after", "before"}}, Model: "delay",
		Rows: []experiment.Variant{
			{Name: "before", About: "Linux 5.18: a direct request with NOWAIT may sleep", Policy: before, PublishedMiB: 407 + 407},
			{Name: "after", About: "with the eight patches of the seed", Policy: after, PublishedMiB: 436 + 435},
		}}
	for i, d := range Patches000() {
		direct.Ablation = append(direct.Ablation, experiment.Variant{Name: fmt.Sprintf("no D%d", i), About: "after without " + d, Policy: after + "!" + d})
	}
	fsync := Seed{Name: "003", Title: "Eight writers and fsync", Job: Seed003, Baseline: "fsync-5.17", OwnFiles: true, FileSize: 16 << 20,
		Pairs: [][2]string{{"fsync-5.17", "fsync-commit"}, {"fsync-5.18", "fsync-5.17"}},
		Rows: []experiment.Variant{
			{Name: "fsync-commit", About: "every fsync commits the transaction", Policy: "fsync-commit"},
			{Name: "fsync-5.17", About: "an fsync writes a log tree", Policy: "fsync-5.17", PublishedMiB: 116},
			{Name: "fsync-5.18", About: "with the six patches of the seed", Policy: "fsync-5.18", PublishedMiB: 125},
		}}
	for i, l := range Patches003() {
		fsync.Ablation = append(fsync.Ablation, experiment.Variant{Name: fmt.Sprintf("no L%d", i+1), About: "fsync-5.18 without " + l, Policy: "fsync-5.18!" + l})
	}
	return []Seed{
		direct,
		{Name: "001", Title: "Buffered writes through io_uring", Job: Seed001, Baseline: "before", Cached: true,
			Pairs: [][2]string{{"io_uring", "before"}, {"io_uring", "psync"}, {"io_uring-4", "before-4"}},
			Rows: []experiment.Variant{
				{Name: "psync", About: "pwrite", Policy: patch, Published: 148_000},
				{Name: "libaio", About: "io_submit, which does a buffered write itself", Policy: patch, Set: set(libaio), Published: 117_000},
				{Name: "libaio-4", About: "libaio with iodepth=4", Policy: patch, Set: set(libaio, four)},
				{Name: "before", About: "io_uring without the patch: a worker does each write", Policy: none, Set: set(uring), Published: 55_000},
				{Name: "before-4", About: "before with iodepth=4", Policy: none, Set: set(uring, four)},
				{Name: "io_uring", About: "io_uring with the patch: the submitter tries each write", Policy: patch, Set: set(uring), Published: 134_000},
				{Name: "io_uring-4", About: "io_uring with iodepth=4", Policy: patch, Set: set(uring, four)},
			}},
		locking,
		fsync,
		{Name: "004", Title: "Direct writes of less than a block", Job: Seed004, Baseline: "exclusive", Model: "delay",
			Pairs: [][2]string{{"check-first", "exclusive"}, {"retry", "check-first"}, {"buffered", "exclusive"}},
			Rows: []experiment.Variant{
				{Name: "exclusive", About: "ext4 of Linux 6.2: each write alone", Policy: "unaligned-exclusive", Published: 4328},
				{Name: "check-first", About: "ext4 with the patch: together in blocks that are written", Policy: "unaligned-check-first", Published: 801_000},
				{Name: "retry", About: "XFS: together until a block is not written", Policy: "unaligned-retry"},
				{Name: "buffered", About: "btrfs: through the page cache, then flushed", Policy: "modern"},
			}},
	}
}
