// Package orderawrite is lab 11: the order of the steps of a buffered write. See README.md.
package orderawrite

import "btrlab/internal/policy"

// Locked is the order of Linux 4.17.
func Locked() []policy.WriteStep {
	return []policy.WriteStep{
		policy.FaultIn,
		policy.Reserve,
		policy.PreparePages,
		policy.LockExtent,
		policy.CopyFromUser,
		policy.DirtyPages,
		policy.ISizeWrite,
		policy.SetDelalloc,
		policy.DropPages,
		policy.BalanceDirty,
	}
}

// Unlocked is the same order: nothing of it needs i_rwsem inside EOF.
func Unlocked() []policy.WriteStep { return Locked() }

// Answers says of each order of the questions which schedule breaks it, or "never".
func Answers() map[string]string {
	return map[string]string{
		"size-last":        "16:1",
		"size-last-inside": "never",
		"size-first":       "never",
		"delalloc-last":    "14:1",
		"copy-early":       "4:1,25:0",
		"dirty-early":      "4:1,25:0",
		"reserve-first":    "never",
		"source-last":      "never",
		"dirty-late":       "never",
		"range-first":      "12:1",
	}
}
