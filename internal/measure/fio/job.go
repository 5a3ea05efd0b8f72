package fio

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/kiocb"
	"btrlab/internal/measure/stats"
)

// Engine is an ioengine.
type Engine uint8

// The engines.
const (
	PSync   Engine = iota // pread, pwrite
	Sync                  // lseek, read, write; here as psync
	PVSync2               // preadv2, pwritev2, which have flags
	LibAIO                // io_submit, io_getevents
	IOUring               // io_uring_enter
)

var engineNames = [...]string{"psync", "sync", "pvsync2", "libaio", "io_uring"}

func (e Engine) String() string { return engineNames[e] }

// async says whether an engine may have several requests of a task at a time.
func (e Engine) async() bool { return e >= LibAIO }

// Fallocate is how a file that is too small is made larger before its job starts.
type Fallocate uint8

// The modes of fallocate=.
const (
	FallocNative   Fallocate = iota // mode 0; not an error when the target cannot
	FallocPosix                     // mode 0
	FallocKeep                      // FALLOC_FL_KEEP_SIZE
	FallocTruncate                  // set the size, allocate nothing
	FallocNone
)

var fallocNames = [...]string{"native", "posix", "keep", "truncate", "none"}

func (f Fallocate) String() string { return fallocNames[f] }

// BlockShare is one block size of a job and how often it is taken.
type BlockShare struct {
	Size    int // bytes
	Percent int // of requests
}

// Directions index what a job has for reads and for writes.
const (
	DirRead = iota
	DirWrite
)

// Job is one section of a job file with what it inherits from [global].
type Job struct {
	Name    string
	Line    int            // of the section in the job file
	Options []stats.Option // of this section alone, as written

	Description    string
	RW             string // as fio prints it: randwrite, rw, ...
	Read, Write    bool
	Random         bool
	BS             [2][]BlockShare // by direction; one entry unless bssplit
	Filename       string
	Directory      string
	Size           int64 // bytes; 0: the whole file
	SizePercent    int   // of the file; 0: Size counts
	FileSize       int64 // bytes the file is made; 0: Size
	IOSize         int64 // bytes to move; 0: Size
	Offset         int64 // bytes
	OffsetPercent  int
	NumJobs        int
	Runtime        time.Duration
	TimeBased      bool
	Ramp           time.Duration // runs before anything is measured
	NumberIOs      uint64        // 0: no bound
	Engine         Engine
	IODepth        int
	BatchSubmit    int // requests submitted at once; 0: IODepth
	BatchMin       int // of completions to wait for when IODepth are in flight
	BatchMax       int // and to take at once; 0: BatchMin
	DepthLow       int // how many are left in flight then; 0: IODepth
	ForceAsync     int // every so many requests of io_uring one goes to a worker at once; 0: none
	Nowait         bool
	IgnoreError    [2][]errno.Errno // by direction: errors that do not end the job
	Direct         bool
	Fsync          int // writes between fsyncs; 0: none
	EndFsync       bool
	Fallocate      Fallocate
	NoRandomMap    bool
	Invalidate     bool // drop the job's part of the file from the cache before it starts
	GroupReporting bool
	NewGroup       bool
	Stonewall      bool
	RWMixRead      int    // percent
	RateIOPS       [2]int // per second and task; 0: as fast as it goes
	Verify         bool   // crc32c
	RandSeed       uint64
	Thread         bool // accepted; tasks are always threads of one process
}

// JobFile is a parsed job file.
type JobFile struct {
	Name   string
	Global []stats.Option
	Jobs   []*Job
}

// A value error says what was expected; parse adds option, file and line.
type wantError string

func (e wantError) Error() string { return "want " + string(e) }

type option struct {
	name    string
	aliases []string
	flag    bool // may stand without a value
	set     func(j *Job, v string) error
}

const wantSize = wantError("a size in bytes such as 4096, 4k or 1g")

// parseSize reads an amount of bytes as fio does with kb_base=1024: k, kb and ki are 1024, and so on
// up to p; kib, mib, ... are powers of 1000 there, which is fio's compatibility with its first scripts.
func parseSize(s string) (int64, error) {
	l := strings.ToLower(strings.TrimSpace(s))
	if h, ok := strings.CutPrefix(l, "0x"); ok {
		n, err := strconv.ParseInt(h, 16, 64)
		if err != nil || n < 0 {
			return 0, wantSize
		}
		return n, nil
	}
	i := 0
	for i < len(l) && l[i] >= '0' && l[i] <= '9' {
		i++
	}
	n, err := strconv.ParseInt(l[:i], 10, 64)
	if err != nil {
		return 0, wantSize
	}
	unit := l[i:]
	base := int64(1024)
	if strings.HasSuffix(unit, "ib") {
		base = 1000
		unit = strings.TrimSuffix(unit, "ib")
	} else {
		unit = strings.TrimSuffix(strings.TrimSuffix(unit, "b"), "i")
	}
	p := 0
	if unit != "" {
		p = strings.Index("kmgtp", unit) + 1
		if p == 0 || len(unit) != 1 {
			return 0, wantSize
		}
	} else if strings.HasSuffix(l, "i") || strings.HasSuffix(l, "ib") {
		return 0, wantSize
	}
	for ; p > 0; p-- {
		if n > math.MaxInt64/base {
			return 0, wantError("a size below 8 EiB")
		}
		n *= base
	}
	return n, nil
}

// parsePercent reads "20%"; ok is false when s has no percent sign.
func parsePercent(s string) (pct int, ok bool, err error) {
	v, ok := strings.CutSuffix(strings.TrimSpace(s), "%")
	if !ok {
		return 0, false, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 100 {
		return 0, true, wantError("1% to 100%")
	}
	return n, true, nil
}

func parseTime(s string) (time.Duration, error) {
	const want = wantError("a time such as 30, 30s, 500ms, 2m or 1h")
	l := strings.ToLower(strings.TrimSpace(s))
	i := 0
	for i < len(l) && l[i] >= '0' && l[i] <= '9' {
		i++
	}
	n, err := strconv.ParseInt(l[:i], 10, 64)
	if err != nil {
		return 0, want
	}
	var u time.Duration
	switch l[i:] {
	case "", "s", "sec":
		u = time.Second
	case "us", "usec":
		u = time.Microsecond
	case "ms", "msec":
		u = time.Millisecond
	case "m":
		u = time.Minute
	case "h":
		u = time.Hour
	case "d":
		u = 24 * time.Hour
	default:
		return 0, want
	}
	if n > int64(math.MaxInt64/u) {
		return 0, wantError("a time below 292 years")
	}
	return time.Duration(n) * u, nil
}

func parseBool(v string) (bool, error) {
	switch v {
	case "", "1":
		return true, nil
	case "0":
		return false, nil
	}
	return false, wantError("0 or 1")
}

// parseInt reads a count; fio lets counts have size suffixes too.
func parseInt(v string, lo, hi int64) (int64, error) {
	n, err := parseSize(v)
	if err != nil || n < lo || n > hi {
		return 0, wantError(fmt.Sprintf("a number from %d to %d", lo, hi))
	}
	return n, nil
}

func intOption(name string, lo, hi int64, set func(j *Job, n int64), aliases ...string) option {
	return option{name: name, aliases: aliases, set: func(j *Job, v string) error {
		n, err := parseInt(v, lo, hi)
		if err == nil {
			set(j, n)
		}
		return err
	}}
}

func boolOption(name string, field func(j *Job) *bool, aliases ...string) option {
	return option{name: name, aliases: aliases, flag: true, set: func(j *Job, v string) error {
		b, err := parseBool(v)
		if err == nil {
			*field(j) = b
		}
		return err
	}}
}

const maxBlock = 64 << 20 // bytes; a task has one buffer of the largest block per request in flight

func parseBlockSize(v string) (int, error) {
	n, err := parseSize(v)
	if err != nil {
		return 0, err
	}
	if n < 1 || n > maxBlock {
		return 0, wantError("a block size from 1 byte to 64m")
	}
	return int(n), nil
}

// perDir calls f with the part of "read,write,trim" for each direction; one part is for both, an empty
// part leaves the direction as it is.
func perDir(v string, f func(dir int, part string) error) error {
	parts := strings.Split(v, ",")
	if len(parts) > 3 {
		return wantError("at most three values: read,write,trim")
	}
	for dir := DirRead; dir <= DirWrite; dir++ {
		p := parts[min(dir, len(parts)-1)]
		if p == "" && len(parts) > 1 {
			continue
		}
		if err := f(dir, strings.TrimSpace(p)); err != nil {
			return err
		}
	}
	return nil
}

func parseBSSplit(v string) ([]BlockShare, error) {
	var out []BlockShare
	sum, open := 0, 0
	for _, e := range strings.Split(v, ":") {
		bs, pct, has := strings.Cut(e, "/")
		n, err := parseBlockSize(bs)
		if err != nil {
			return nil, err
		}
		p := -1
		if has && pct != "" {
			p, err = strconv.Atoi(strings.TrimSuffix(pct, "%"))
			if err != nil || p < 0 || p > 100 {
				return nil, wantError("blocksize/percent:blocksize/percent..., percent from 0 to 100")
			}
			sum += p
		} else {
			open++
		}
		out = append(out, BlockShare{n, p})
	}
	if sum > 100 {
		return nil, wantError(fmt.Sprintf("percentages that add up to 100, have %d", sum))
	}
	rest := 100 - sum
	if open == 0 {
		out[len(out)-1].Percent += rest // as fio: what no entry claims goes to the last
		return out, nil
	}
	for i := range out {
		if out[i].Percent < 0 { // those without a percentage share the rest
			out[i].Percent = rest / open
			rest -= out[i].Percent
			open--
		}
	}
	return out, nil
}

var options = []option{
	{name: "name", set: func(j *Job, v string) error { j.Name = v; return nil }},
	{name: "description", set: func(j *Job, v string) error { j.Description = v; return nil }},
	{name: "filename", set: func(j *Job, v string) error {
		if strings.Contains(v, ":") {
			return wantError("one file name; several joined by ':' are not supported")
		}
		j.Filename = v
		return nil
	}},
	{name: "directory", set: func(j *Job, v string) error { j.Directory = v; return nil }},
	{name: "rw", aliases: []string{"readwrite"}, set: func(j *Job, v string) error {
		j.Read, j.Write, j.Random = false, false, false
		switch v {
		case "read":
			j.Read = true
		case "write":
			j.Write = true
		case "randread":
			j.Read, j.Random = true, true
		case "randwrite":
			j.Write, j.Random = true, true
		case "rw", "readwrite":
			j.Read, j.Write = true, true
			v = "rw"
		case "randrw":
			j.Read, j.Write, j.Random = true, true, true
		default:
			return wantError("read, write, randread, randwrite, rw or randrw")
		}
		j.RW = v
		return nil
	}},
	{name: "bs", aliases: []string{"blocksize"}, set: func(j *Job, v string) error {
		return perDir(v, func(dir int, p string) error {
			n, err := parseBlockSize(p)
			if err == nil {
				j.BS[dir] = []BlockShare{{n, 100}}
			}
			return err
		})
	}},
	{name: "bssplit", set: func(j *Job, v string) error {
		return perDir(v, func(dir int, p string) error {
			s, err := parseBSSplit(p)
			if err == nil {
				j.BS[dir] = s
			}
			return err
		})
	}},
	{name: "size", set: func(j *Job, v string) error {
		pct, is, err := parsePercent(v)
		if is {
			j.Size, j.SizePercent = 0, pct
			return err
		}
		n, err := parseSize(v)
		if err == nil {
			j.Size, j.SizePercent = n, 0
		}
		return err
	}},
	{name: "filesize", set: func(j *Job, v string) error {
		n, err := parseSize(v)
		if err == nil {
			j.FileSize = n
		}
		return err
	}},
	{name: "io_size", aliases: []string{"io_limit"}, set: func(j *Job, v string) error {
		n, err := parseSize(v)
		if err == nil {
			j.IOSize = n
		}
		return err
	}},
	{name: "offset", set: func(j *Job, v string) error {
		pct, is, err := parsePercent(v)
		if is {
			j.Offset, j.OffsetPercent = 0, pct
			return err
		}
		n, err := parseSize(v)
		if err == nil {
			j.Offset, j.OffsetPercent = n, 0
		}
		return err
	}},
	intOption("numjobs", 1, 4096, func(j *Job, n int64) { j.NumJobs = int(n) }),
	boolOption("thread", func(j *Job) *bool { return &j.Thread }),
	{name: "runtime", aliases: []string{"timeout"}, set: func(j *Job, v string) error {
		d, err := parseTime(v)
		if err == nil {
			j.Runtime = d
		}
		return err
	}},
	{name: "ramp_time", set: func(j *Job, v string) error {
		d, err := parseTime(v)
		if err == nil {
			j.Ramp = d
		}
		return err
	}},
	boolOption("time_based", func(j *Job) *bool { return &j.TimeBased }),
	intOption("number_ios", 0, math.MaxInt64, func(j *Job, n int64) { j.NumberIOs = uint64(n) }),
	intOption("iodepth", 1, 4096, func(j *Job, n int64) { j.IODepth = int(n) }),
	intOption("iodepth_batch_submit", 0, 4096, func(j *Job, n int64) { j.BatchSubmit = int(n) }, "iodepth_batch"),
	intOption("iodepth_batch_complete_min", 0, 4096, func(j *Job, n int64) { j.BatchMin = int(n) }, "iodepth_batch_complete"),
	intOption("iodepth_batch_complete_max", 0, 4096, func(j *Job, n int64) { j.BatchMax = int(n) }),
	intOption("iodepth_low", 0, 4096, func(j *Job, n int64) { j.DepthLow = int(n) }),
	intOption("force_async", 0, math.MaxInt32, func(j *Job, n int64) { j.ForceAsync = int(n) }),
	boolOption("nowait", func(j *Job) *bool { return &j.Nowait }),
	{name: "hipri", flag: true, set: func(_ *Job, v string) error {
		if on, err := parseBool(v); on || err != nil {
			return wantError("0: hipri asks a block device's queue for completions, and a file in an image has none")
		}
		return nil
	}},
	{name: "ignore_error", set: func(j *Job, v string) error {
		return perDir(v, func(dir int, p string) (err error) {
			j.IgnoreError[dir], err = parseErrors(p)
			return err
		})
	}},
	intOption("fsync", 0, math.MaxInt32, func(j *Job, n int64) { j.Fsync = int(n) }),
	boolOption("end_fsync", func(j *Job) *bool { return &j.EndFsync }),
	{name: "fallocate", set: func(j *Job, v string) error {
		switch v {
		case "0":
			v = "none"
		case "1":
			v = "posix"
		}
		for i, n := range fallocNames {
			if v == n {
				j.Fallocate = Fallocate(i)
				return nil
			}
		}
		return wantError("none, native, posix, keep or truncate")
	}},
	boolOption("norandommap", func(j *Job) *bool { return &j.NoRandomMap }),
	boolOption("invalidate", func(j *Job) *bool { return &j.Invalidate }),
	boolOption("direct", func(j *Job) *bool { return &j.Direct }),
	{name: "buffered", flag: true, set: func(j *Job, v string) error {
		b, err := parseBool(v)
		if err == nil {
			j.Direct = !b
		}
		return err
	}},
	{name: "ioengine", set: func(j *Job, v string) error {
		for i, n := range engineNames {
			if v == n {
				j.Engine = Engine(i)
				return nil
			}
		}
		return wantError("psync, sync, pvsync2, libaio or io_uring")
	}},
	boolOption("group_reporting", func(j *Job) *bool { return &j.GroupReporting }),
	boolOption("new_group", func(j *Job) *bool { return &j.NewGroup }),
	boolOption("stonewall", func(j *Job) *bool { return &j.Stonewall }, "wait_for_previous"),
	intOption("rwmixread", 0, 100, func(j *Job, n int64) { j.RWMixRead = int(n) }),
	intOption("rwmixwrite", 0, 100, func(j *Job, n int64) { j.RWMixRead = 100 - int(n) }),
	{name: "rate_iops", set: func(j *Job, v string) error {
		return perDir(v, func(dir int, p string) error {
			n, err := parseInt(p, 0, 1_000_000_000)
			if err == nil {
				j.RateIOPS[dir] = int(n)
			}
			return err
		})
	}},
	{name: "verify", set: func(j *Job, v string) error {
		switch v {
		case "crc32c":
			j.Verify = true
		case "0":
			j.Verify = false
		default:
			return wantError("crc32c or 0")
		}
		return nil
	}},
	intOption("randseed", 0, math.MaxInt64, func(j *Job, n int64) { j.RandSeed = uint64(n) }),
}

var optionByName = func() map[string]*option {
	m := map[string]*option{}
	for i := range options {
		o := &options[i]
		for _, n := range append([]string{o.name}, o.aliases...) {
			if m[n] != nil {
				panic("fio: two options named " + n)
			}
			m[n] = o
		}
	}
	return m
}()

// OptionNames lists the options that a job file may use, without aliases, sorted.
func OptionNames() []string {
	var out []string
	for _, o := range options {
		out = append(out, o.name)
	}
	sort.Strings(out)
	return out
}

func (j *Job) set(key, val string, has bool) error {
	o := optionByName[key]
	if o == nil {
		return fmt.Errorf("unknown option %q%s", key, suggest(key))
	}
	if (!has || val == "") && !o.flag {
		return fmt.Errorf("option %s needs a value", key)
	}
	if has && val == "" {
		return fmt.Errorf("option %s has an empty value", key)
	}
	if err := o.set(j, val); err != nil {
		return fmt.Errorf("bad value for %s: %q, %w", key, val, err)
	}
	return nil
}

func suggest(key string) string {
	best, at := "", 3
	for n := range optionByName {
		if d := distance(key, n); d < at || d == at && best != "" && n < best {
			best, at = n, d
		}
	}
	if best == "" {
		return "; known options: " + strings.Join(OptionNames(), " ")
	}
	return fmt.Sprintf(", did you mean %q?", best)
}

// distance is Levenshtein's.
func distance(a, b string) int {
	prev := make([]int, len(b)+1)
	for i := range prev {
		prev[i] = i
	}
	for i := range len(a) {
		diag := prev[0]
		prev[0] = i + 1
		for k := range len(b) {
			cost := diag
			if a[i] != b[k] {
				cost++
			}
			diag = prev[k+1]
			prev[k+1] = min(cost, prev[k]+1, diag+1)
		}
	}
	return prev[len(b)]
}

func defaults() Job {
	four := []BlockShare{{4096, 100}}
	return Job{RW: "read", Read: true, BS: [2][]BlockShare{four, four}, NumJobs: 1, IODepth: 1, BatchSubmit: 1, BatchMin: 1, RWMixRead: 50, Invalidate: true}
}

func parse(name string, r io.Reader) (*JobFile, error) {
	jf := &JobFile{Name: name}
	global := defaults()
	var job *Job
	section := ""
	line := 0
	fail := func(err error) (*JobFile, error) { return nil, fmt.Errorf("%s:%d: %w", name, line, err) }
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line++
		s := strings.TrimSpace(sc.Text())
		if line == 1 {
			s = strings.TrimPrefix(s, "\ufeff")
		}
		if s == "" || s[0] == ';' || s[0] == '#' {
			continue
		}
		if s[0] == '[' {
			end := strings.IndexByte(s, ']')
			if end < 0 {
				return fail(fmt.Errorf("section %q has no closing ]", s))
			}
			section = strings.TrimSpace(s[1:end])
			if section == "" {
				return fail(fmt.Errorf("section without a name"))
			}
			if rest := strings.TrimSpace(s[end+1:]); rest != "" && rest[0] != ';' && rest[0] != '#' {
				return fail(fmt.Errorf("%q after section [%s]", rest, section))
			}
			job = nil
			if !strings.EqualFold(section, "global") {
				j := global // what [global] said up to here
				job = &j
				job.Name, job.Line = section, line
				jf.Jobs = append(jf.Jobs, job)
			}
			continue
		}
		if section == "" {
			return fail(fmt.Errorf("option %q before the first section", s))
		}
		key, val, has := strings.Cut(s, "=")
		key, val = strings.TrimSpace(key), strings.TrimSpace(val)
		target := &global
		if job != nil {
			target = job
		}
		if err := target.set(key, val, has); err != nil {
			return fail(err)
		}
		if job != nil {
			job.Options = append(job.Options, stats.Option{Key: key, Value: val})
		} else {
			jf.Global = append(jf.Global, stats.Option{Key: key, Value: val})
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(jf.Jobs) == 0 {
		return nil, fmt.Errorf("%s: no job: want a section other than [global]", name)
	}
	for _, j := range jf.Jobs {
		if err := j.check(); err != nil {
			return nil, fmt.Errorf("%s:%d: job %s: %w", name, j.Line, j.Name, err)
		}
	}
	return jf, nil
}

// check looks at options that only make sense together.
func (j *Job) check() error {
	if j.TimeBased && j.Runtime == 0 {
		return fmt.Errorf("time_based needs runtime")
	}
	switch {
	case j.Nowait && (j.Engine == PSync || j.Engine == Sync):
		return fmt.Errorf("nowait is for ioengine pvsync2, libaio and io_uring, have %s", j.Engine)
	case j.ForceAsync > 0 && j.Engine != IOUring:
		return fmt.Errorf("force_async is for ioengine io_uring, have %s", j.Engine)
	case j.Engine.async() && j.BatchSubmit > j.IODepth:
		return fmt.Errorf("iodepth_batch_submit %d is more than iodepth %d", j.BatchSubmit, j.IODepth)
	}
	if j.Size > 0 && j.Size < int64(j.minBS()) {
		return fmt.Errorf("size %d is smaller than one block of %d", j.Size, j.minBS())
	}
	if j.Verify {
		unit := j.minBS()
		if unit < verifyHeaderLen {
			return fmt.Errorf("verify needs blocks of at least %d bytes, have %d", verifyHeaderLen, unit)
		}
		for _, d := range j.BS {
			for _, b := range d {
				if b.Size%unit != 0 {
					return fmt.Errorf("verify needs block sizes that are multiples of the smallest, have %d and %d", b.Size, unit)
				}
			}
		}
	}
	return nil
}

// depth is how many requests a task of the job may have in flight.
func (j *Job) depth() int {
	if j.Engine.async() {
		return j.IODepth
	}
	return 1
}

// flags are what every request of the job carries.
func (j *Job) flags() (f kiocb.Flags) {
	if j.Direct {
		f |= kiocb.Direct
	}
	if j.Nowait {
		f |= kiocb.Nowait
	}
	return f
}

// batch is how many requests are submitted at once.
func (j *Job) batch() int {
	if j.BatchSubmit == 0 {
		return j.IODepth
	}
	return j.BatchSubmit
}

// most is how many completions are taken at once, when no more are waited for.
func (j *Job) most() int { return max(1, min(j.IODepth, max(j.BatchMin, j.BatchMax))) }

// low is how many requests are left in flight once there were iodepth.
func (j *Job) low() int {
	if j.DepthLow == 0 {
		return j.IODepth
	}
	return min(j.DepthLow, j.IODepth)
}

// ignorable are the errors that ignore_error may name.
var ignorable = map[string]errno.Errno{"EAGAIN": errno.EAGAIN, "EDQUOT": errno.EDQUOT, "EFBIG": errno.EFBIG, "EILSEQ": errno.EILSEQ, "EINVAL": errno.EINVAL,
	"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EOPNOTSUPP": errno.EOPNOTSUPP}

// parseErrors reads error names or numbers, joined by colons.
func parseErrors(v string) (list []errno.Errno, err error) {
	for _, name := range strings.Split(v, ":") {
		no, ok := ignorable[name]
		if !ok {
			n, err := strconv.ParseUint(name, 10, 8)
			if err != nil || n == 0 {
				return nil, wantError("errors such as EAGAIN or 11, joined by colons, for reads and after a comma for writes")
			}
			no = errno.Errno(n)
		}
		list = append(list, no)
	}
	return list, nil
}

// ignores says whether a request that ended with err is only counted.
func (j *Job) ignores(dir int, err error) bool {
	return slices.ContainsFunc(j.IgnoreError[dir], func(no errno.Errno) bool { return errors.Is(err, no) })
}

// numberOf is the error number in err, or EIO's.
func numberOf(err error) int {
	var no errno.Errno
	switch {
	case errors.As(err, &no):
		return int(no)
	case errors.Is(err, errno.EAGAIN):
		return int(errno.EAGAIN)
	}
	return int(errno.EIO)
}

// minBS is the smallest block of the directions the job uses, in bytes.
func (j *Job) minBS() int {
	n := math.MaxInt
	for d, use := range [2]bool{j.Read, j.Write} {
		if use {
			for _, b := range j.BS[d] {
				n = min(n, b.Size)
			}
		}
	}
	return n
}

func (j *Job) maxBS(dir int) int {
	n := 0
	for _, b := range j.BS[dir] {
		n = max(n, b.Size)
	}
	return n
}

// Set changes an option of every job, as if the job file had said so: a command line scales a job so.
func (jf *JobFile) Set(key, val string) error {
	if err := jf.change(key, val); err != nil {
		return err
	}
	return jf.check()
}

func (jf *JobFile) change(key, val string) error {
	for _, j := range jf.Jobs {
		if err := j.set(key, val, val != ""); err != nil {
			return err
		}
		j.Options = setOption(j.Options, key, val, false)
	}
	jf.Global = setOption(jf.Global, key, val, true)
	return nil
}

func (jf *JobFile) check() error {
	for _, j := range jf.Jobs {
		if err := j.check(); err != nil {
			return fmt.Errorf("job %s: %w", j.Name, err)
		}
	}
	return nil
}

// With is a copy with options changed as by Set. They are checked together: one may need another.
func (jf *JobFile) With(set [][2]string) (*JobFile, error) {
	c := *jf
	c.Jobs = nil
	for _, j := range jf.Jobs {
		j := *j
		c.Jobs = append(c.Jobs, &j)
	}
	for _, kv := range set {
		if err := c.change(kv[0], kv[1]); err != nil {
			return nil, err
		}
	}
	return &c, c.check()
}

// setOption changes key where list has it; add appends it where it is missing.
func setOption(list []stats.Option, key, val string, add bool) []stats.Option {
	out := append([]stats.Option(nil), list...)
	for i := range out {
		if optionByName[out[i].Key] == optionByName[key] {
			out[i].Value = val
			return out
		}
	}
	if add {
		out = append(out, stats.Option{Key: key, Value: val})
	}
	return out
}

// fileName is the file of task n of the job, as fio names it.
func (j *Job) fileName(n int) string {
	name := j.Filename
	if name == "" {
		name = fmt.Sprintf("%s.%d.0", j.Name, n)
	}
	if j.Directory != "" {
		name = path.Join(j.Directory, name)
	}
	return name
}
