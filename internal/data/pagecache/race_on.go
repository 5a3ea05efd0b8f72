//go:build race

package pagecache

// raceEnabled makes readers lock the pages they copy: a read beside a write is torn, as in the
// kernel, and the race detector would report each.
const raceEnabled = true
