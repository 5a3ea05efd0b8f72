package app

import (
	"runtime/debug"

	"github.com/spf13/cobra"

	"btrlab/internal/fs"
	"btrlab/internal/script"
)

// heapSlack is the memory of the program without its caches, in bytes.
const heapSlack = 32 << 20

// CacheSize is --cache or its default, in bytes.
func (a *Run) CacheSize() int64 {
	if a.Cache.N > 0 {
		return a.Cache.N
	}
	return fs.DefaultMemory()
}

// LimitHeap makes the garbage collector keep the heap within the caches and a little more. Without
// a limit the heap may grow to twice the size of the caches. A lower limit that the user has set
// (GOMEMLIMIT) stays.
func (a *Run) LimitHeap() (undo func()) {
	old := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(old, a.CacheSize()+heapSlack))
	return func() { debug.SetMemoryLimit(old) }
}

// MinCache is the least that --cache takes, in bytes.
const MinCache = 4 << 20

// CacheFlag is --cache, for the verbs that read or change much.
func (a *Run) CacheFlag(cmd *cobra.Command) {
	cmd.Flags().Var(&a.Cache, "cache", "memory for file contents and metadata (default a quarter of RAM, at most 1G)")
	a.cacheBound(cmd)
}

// SmallCacheFlag is --cache for the verbs that read or write everything once: a larger cache than n
// bytes costs more than it saves, because its memory is new.
func (a *Run) SmallCacheFlag(cmd *cobra.Command, n int64) {
	cmd.Flags().Var(&a.Cache, "cache", "memory for file contents and metadata (default "+script.FormatSize(n)+")")
	a.cacheBound(cmd)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !a.Cache.Given {
			a.Cache.N = n
		}
		return run(cmd, args)
	}
}

func (a *Run) cacheBound(cmd *cobra.Command) {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := Check(cmd, AtLeast(a.Cache.N, MinCache, "bad --cache, have %d want at least %d").If(a.Cache.Given)); err != nil {
			return err
		}
		return run(cmd, args)
	}
}
