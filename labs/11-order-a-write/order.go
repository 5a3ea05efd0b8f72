// Package orderawrite is lab 11: the order of the steps of a buffered write. See README.md.
package orderawrite

import "btrlab/internal/policy"

// Locked is the order in which one batch of a buffered write takes its steps while the write has
// i_rwsem. Each comes once.
//
// This one has what every batch needs, as it comes to mind. Change it.
func Locked() []policy.WriteStep {
	return []policy.WriteStep{
		// the pages are locked, and those that are overwritten in part are read
		policy.PreparePages,
		// the extent range is locked, if it is inside EOF; an ordered extent in it is waited for
		policy.LockExtent,
		policy.FaultIn,      // the source is present
		policy.Reserve,      // space is promised for data and metadata
		policy.CopyFromUser, // the bytes are copied
		policy.DirtyPages,   // the pages are dirty
		policy.SetDelalloc,  // the range has the space; its lock is let go
		policy.BalanceDirty, // too much is dirty: the task waits
		policy.DropPages,    // the pages are let go
		policy.ISizeWrite,   // i_size follows
	}
}

// Unlocked is the order of a batch of a write inside EOF that has let i_rwsem go.
func Unlocked() []policy.WriteStep { return Locked() }

// Answers says of each order of the questions which schedule breaks it, or "never". README.md has
// the questions.
func Answers() map[string]string {
	return map[string]string{
		"size-last":        "?",
		"size-first":       "?",
		"size-last-inside": "?",
		"source-last":      "?",
		"delalloc-last":    "?",
		"copy-early":       "?",
		"dirty-early":      "?",
		"reserve-first":    "?",
		"dirty-late":       "?",
		"range-first":      "?",
	}
}
