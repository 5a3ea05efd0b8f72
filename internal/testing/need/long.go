package need

import (
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"testing"
)

// LongEnv says which of the long tests run. Unset, all do. "0" leaves them out: make test. "N/TEXT"
// runs one in N of them, those that TEXT draws: a commit's own sample, in CI; N is 1 or more.
const LongEnv = "BTRLAB_LONG"

// Long skips a test that takes long, when it is to be left out or another commit draws it. A test
// is long that takes more than some four seconds of a processor; what it guards is guarded in every
// run of make long, and in one in N commits.
func Long(t testing.TB) {
	t.Helper()
	switch run, why := drawn(os.Getenv(LongEnv), t.Name()); {
	case why != "":
		t.Fatal(why)
	case !run:
		t.Skip("LONG, LEFT OUT: make long runs it")
	}
}

// Drawn reports whether the long test name runs, for those that are lists of cases.
func Drawn(t testing.TB, name string) bool {
	t.Helper()
	run, why := drawn(os.Getenv(LongEnv), name)
	if why != "" {
		t.Fatal(why)
	}
	return run
}

func drawn(env, name string) (run bool, why string) {
	switch env {
	case "":
		return true, ""
	case "0":
		return false, ""
	}
	of, text, ok := strings.Cut(env, "/")
	n, err := strconv.ParseUint(of, 10, 32)
	if !ok || err != nil || n == 0 {
		return false, "bad " + LongEnv + ", have " + strconv.Quote(env) + ` want 0, or N/TEXT as "4/1c2d"`
	}
	h := fnv.New64a()
	h.Write([]byte(text + " " + name))
	return mix(h.Sum64())%n == 0, ""
}

// mix spreads a hash of short texts over its low bits. Models the finalizer of MurmurHash3.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
