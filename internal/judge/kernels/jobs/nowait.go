package jobs

import (
	"errors"
	"fmt"

	"btrlab/internal/errno"
)

// Files that jobs leave.
const (
	ImagesFile = "images.json" // []ImageSaid
	CrashFile  = "crash.json"  // []CrashSaid
	ReplayFile = "replay.json" // []ReplaySaid
	LogsFile   = "logs.json"   // []LogSaid
	NowaitFile = "nowait.json" // map of NowaitCell.Key to verdicts
	// NowaitSpaceFile has, of the full file system, a line for each write: its verdict, and what
	// space_info of metadata said before it.
	NowaitSpaceFile = "nowait-space.txt"
)

// ImageSaid is what a kernel says of an image that it mounted, read, scrubbed and wrote on.
type ImageSaid struct {
	Error         string            `json:"error"`
	Before, After map[string]string // see Manifest
	ScrubErrors   uint64
}

// CrashSaid is what a kernel had made before the power was cut.
type CrashSaid struct {
	Seed     uint64
	Promised map[string]string // the file of the last fsync; see Manifest
	Log      string            // what was done
}

// ReplaySaid is what a kernel found after it had replayed a log.
type ReplaySaid struct {
	Error string `json:"error"`
	Tree  map[string]string
}

// LogTask is a log that a kernel replays: one that it has left itself, by Lines and a power cut, or
// one of another side.
type LogTask struct {
	Lines []string `json:",omitempty"` // see Do
	Left  string   `json:",omitempty"` // file with a Delta
}

// LogSaid is what a kernel says of a LogTask.
type LogSaid struct {
	Error string            `json:"error"`
	Log   bool              // there was one
	Facts map[string]string // of the tree after replay
}

// NowaitState is a file as the kernel makes it, and the write that is tried on it without waiting:
// Len bytes at Off.
type NowaitState struct {
	Name     string
	NoCOW    bool
	Off, Len int64
	Group    NowaitGroup
	make     string // steps, by KiB
}

// NowaitGroup says what is done to the whole file system once all files are made.
type NowaitGroup int

// The groups.
const (
	NowaitPlain    NowaitGroup = iota
	NowaitSnapshot             // a snapshot is taken
	NowaitQuota                // the subvolume is over its limit
	NowaitFull                 // all space is allocated
	NowaitGroups
)

const kib = 1 << 10

// NowaitStates are all of them.
var NowaitStates = []NowaitState{
	{"NOCOW, written", true, 8 * kib, 4 * kib, NowaitPlain, "write 0 64"},
	{"NOCOW, preallocated", true, 8 * kib, 4 * kib, NowaitPlain, "falloc 0 64"},
	{"NOCOW, punched hole", true, 8 * kib, 4 * kib, NowaitPlain, "write 0 64; punch 4 16"},
	{"NOCOW, sparse inside EOF", true, 8 * kib, 4 * kib, NowaitPlain, "write 60 4"},
	{"NOCOW, append", true, 64 * kib, 4 * kib, NowaitPlain, "write 0 64"},
	{"NOCOW, append to preallocated", true, 64 * kib, 4 * kib, NowaitPlain, "write 0 64; keep 64 64"},
	{"NOCOW, beyond EOF", true, 100 * kib, 4 * kib, NowaitPlain, "write 0 64"},
	{"NOCOW, 512 bytes", true, 8*kib + 512, 512, NowaitPlain, "write 0 64"},
	{"NOCOW, several extents", true, 8 * kib, 16 * kib, NowaitPlain, "write 8 4; sync; write 0 4; sync; write 12 4; sync; write 4 4; sync; write 16 4; sync; write 20 4"},
	{"NOCOW, shared by a reflink", true, 8 * kib, 4 * kib, NowaitPlain, "write 0 64; sync; clone"},
	{"COW, written", false, 8 * kib, 4 * kib, NowaitPlain, "write 0 64"},
	{"COW, preallocated", false, 8 * kib, 4 * kib, NowaitPlain, "falloc 0 64"},
	{"COW, preallocated, written over", false, 8 * kib, 4 * kib, NowaitPlain, "falloc 0 64; write 0 64"},
	{"COW, punched hole", false, 8 * kib, 4 * kib, NowaitPlain, "write 0 64; punch 4 16"},
	{"COW, append", false, 64 * kib, 4 * kib, NowaitPlain, "write 0 64"},
	{"COW, beyond EOF", false, 100 * kib, 4 * kib, NowaitPlain, "write 0 64"},
	{"NOCOW, shared by a snapshot", true, 8 * kib, 4 * kib, NowaitSnapshot, "write 0 64"},
	{"COW, shared by a snapshot", false, 8 * kib, 4 * kib, NowaitSnapshot, "write 0 64"},
	{"NOCOW, over the quota", true, 8 * kib, 4 * kib, NowaitQuota, "write 0 64"},
	{"NOCOW, append over the quota", true, 64 * kib, 4 * kib, NowaitQuota, "write 0 64"},
	{"COW, over the quota", false, 8 * kib, 4 * kib, NowaitQuota, "write 0 64"},
	{"NOCOW, written, no space", true, 8 * kib, 4 * kib, NowaitFull, "write 0 64"},
	{"NOCOW, preallocated, no space", true, 8 * kib, 4 * kib, NowaitFull, "falloc 0 64"},
	{"COW, written, no space", false, 8 * kib, 4 * kib, NowaitFull, "write 0 64"},
}

// The ways of a request, and what was done to its range before.
var (
	NowaitWays   = []string{"buffered", "direct"}
	NowaitCaches = []string{"cold", "cached", "dirty"}
)

// NowaitCell is one question.
type NowaitCell struct {
	State      *NowaitState
	Way, Cache string
}

// NowaitCells are the questions of a group: each state, way and cache.
func NowaitCells(group NowaitGroup) (list []*NowaitCell) {
	for i := range NowaitStates {
		if NowaitStates[i].Group != group {
			continue
		}
		for _, way := range NowaitWays {
			for _, cache := range NowaitCaches {
				list = append(list, &NowaitCell{&NowaitStates[i], way, cache})
			}
		}
	}
	return list
}

// Key names the question.
func (c *NowaitCell) Key() string { return c.State.Name + "/" + c.Way + "/" + c.Cache }

// File is the name of the cell's file that a side writes, "kernel" or "ours". Both are made alike.
func (c *NowaitCell) File(side string) string {
	for i := range NowaitStates {
		if &NowaitStates[i] == c.State {
			return fmt.Sprintf("%s-%d-%s-%s", side, i, c.Way, c.Cache)
		}
	}
	return ""
}

// Verdict words what a write of want bytes without waiting answered: "done", or the errno's name.
func Verdict(n int, want int64, err error) string {
	switch {
	case err == nil && int64(n) == want:
		return "done"
	case err == nil:
		return fmt.Sprintf("short, %d bytes", n)
	}
	for _, e := range []struct {
		no   errno.Errno
		name string
	}{{errno.EAGAIN, "EAGAIN"}, {errno.EOPNOTSUPP, "EOPNOTSUPP"}, {errno.ENOSPC, "ENOSPC"}, {errno.EDQUOT, "EDQUOT"}} {
		if errors.Is(err, e.no) {
			return e.name
		}
	}
	return err.Error()
}
