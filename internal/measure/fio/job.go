package fio

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"btrlab/internal/errno"
	"btrlab/internal/kiocb"
	"btrlab/internal/measure/stats"
)

// Engine is an ioengine.
type Engine uint8

// The engines.
const (
	PSync     Engine = iota // pread, pwrite
	Sync                    // lseek, read, write; here as psync
	PVSync2                 // preadv2, pwritev2, which have flags
	LibAIO                  // io_submit, io_getevents
	IOUring                 // io_uring_enter
	Null                    // nothing: what the job itself costs
	FTruncate               // a write is ftruncate to its offset
)

var engineNames = [...]string{"psync", "sync", "pvsync2", "libaio", "io_uring", "null", "ftruncate"}

// wantEngine is the error of another name.
const wantEngine = wantError("psync, sync, pvsync2, libaio, io_uring, ftruncate or null")

// standIn are engines of fio that another one here stands for, with the reason.
var standIn = map[string]string{
	"posixaio": "glibc's aio_read and aio_write are pread and pwrite of a thread, so iodepth has no effect",
}

func (e Engine) String() string { return engineNames[e] }

// async says whether an engine may have several requests of a task at a time.
func (e Engine) async() bool { return e == LibAIO || e == IOUring }

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

	Description string
	RW          string // as fio prints it: randwrite, rw, ...
	Read, Write bool
	Random      bool
	// bytes between a sequential request's end and the next one's begin; negative goes backwards
	Skip         int64
	Follow       int          // requests that go on where a random one ended, with it
	Distribution Distribution // of random offsets
	// the blocks of a sequence move on by its length each time
	SequenceStride bool
	BS             [2][]BlockShare // by direction; one entry unless bssplit or bsrange
	Filenames      []string        // files of each task; nil: made up by NameFormat
	NameFormat     string          // with $jobname, $jobnum and $filenum
	NumFiles       int             // files of a task, without Filenames
	Service        Service         // which of them is next
	Directory      string
	Size           int64 // bytes of all files of a task; 0: the whole files
	SizePercent    int   // of each file; 0: Size counts
	FileSizeMin    int64 // bytes each file is made, at least
	FileSizeMax    int64 // and at most; 0: Size, in equal parts
	IOSize         int64 // bytes to move; 0: Size
	Offset         int64 // bytes
	OffsetPercent  int
	OffsetStep     int64 // bytes that each further task of the job begins later
	NumJobs        int
	Runtime        time.Duration
	TimeBased      bool
	Ramp           time.Duration // runs before anything is measured
	Loops          int           // passes over the region
	StartDelay     time.Duration
	Think          time.Duration // pause after every ThinkBlocks requests
	ThinkBlocks    int
	BlockAlign     int // bytes: random offsets are multiples of it; 0: the smallest block
	Flow           int // weight of a share of the requests of its flow; 0: none
	FlowID         int
	WaitFor        string // name of the job that ends first; empty: none
	ExitAll        bool   // the end of one of the job's tasks ends others
	ExitWhat       Exit
	NumberIOs      uint64 // 0: no bound
	Engine         Engine
	IODepth        int
	BatchSubmit    int // requests submitted at once; 0: IODepth
	BatchMin       int // of completions to wait for when IODepth are in flight
	BatchMax       int // and to take at once; 0: BatchMin
	DepthLow       int // how many are left in flight then; 0: IODepth
	ForceAsync     int // one of so many requests of io_uring goes to a worker at once; 0: none
	Nowait         bool
	IgnoreError    [2][]errno.Errno // by direction: errors that do not end the job
	IgnoreAll      [2]bool          // by direction: none does
	Direct         bool
	Fsync          int // writes between fsyncs; 0: none
	Fdatasync      int // writes between calls of fdatasync, which is fsync here; 0: none
	// every write is durable when it ends, as if the file was opened with O_SYNC or O_DSYNC
	Sync           bool
	EndFsync       bool
	Fallocate      Fallocate
	NoRandomMap    bool
	Invalidate     bool // drop the job's part of the file from the cache before it starts
	GroupReporting bool
	NewGroup       bool
	Stonewall      bool
	RWMixRead      int      // percent
	RateIOPS       [2]int   // per second and task; 0: as fast as it goes
	Rate           [2]int64 // bytes per second and task; 0: as fast as it goes
	Poisson        bool     // the pauses of a rate are random
	Verify         bool     // crc32c
	DoVerify       bool     // with Verify: read back what was written
	FillDevice     bool     // ENOSPC is the end of the job and no error
	Logs           Logs     // what is logged of each request
	RandSeed       uint64
	Thread         bool // accepted; tasks are always threads of one process
}

// JobFile is a parsed job file.
type JobFile struct {
	Name   string
	Global []stats.Option
	Jobs   []*Job
	// Notes are what the file asks for and does not get: options that have no effect here.
	Notes []string
}

// Tasks is how many tasks the jobs have, numjobs of each, also where they do not run at once.
func (jf *JobFile) Tasks() int {
	n := 0
	for _, j := range jf.Jobs {
		n += j.NumJobs
	}
	return n
}

// Exit is what the end of a task with ExitAll ends.
type Exit uint8

// What ends.
const (
	ExitGroup     Exit = iota // the tasks of its reporting group
	ExitStonewall             // those that run
	ExitEverything
)

var exitNames = [...]string{"group", "stonewall", "all"}

// unknownError is the error of an option that fio may have and btrlab does not.
type unknownError struct{ key string }

func (e *unknownError) Error() string {
	return fmt.Sprintf("unknown option %q%s", e.key, suggest(e.key))
}

func (j *Job) set(key, val string, has bool) error {
	o := optionByName[key]
	if o == nil {
		return &unknownError{key}
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

func defaults() Job {
	four := []BlockShare{{4096, 100}}
	return Job{RW: "read", Read: true, BS: [2][]BlockShare{four, four}, NumJobs: 1, IODepth: 1, BatchSubmit: 1, BatchMin: 1, RWMixRead: 50, Invalidate: true,
		Follow: 1, Loops: 1, ThinkBlocks: 1, DoVerify: true, NumFiles: 1, NameFormat: "$jobname.$jobnum.$filenum", Service: Service{Each: 1}}
}

// Syntax is how job files are read. The zero value is strict: an option that is not known is an
// error.
type Syntax struct {
	IgnoreUnknown bool // such an option is noted and left out
}

// ParseFile reads the job file at path.
func (x Syntax) ParseFile(path string) (*JobFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return x.Parse(path, f)
}

// skips says why an option is left out, with nothing when it is not.
func (x Syntax) skips(key string) string {
	if _, known := optionByName[key]; known {
		return ""
	}
	why, ok := inert[key]
	switch {
	case ok && why == "":
		return "has no effect"
	case ok:
		return "has no effect: " + why
	case x.IgnoreUnknown:
		return "is unknown"
	}
	return ""
}

// variable is a variable of the environment in a job file.
var variable = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)

// clean is a line of a job file without comment and blanks around it, with the variables of the
// environment in it. Models fio init.c: a comment begins at the first ; or #, and a variable that
// is not set is empty.
func clean(line string) string {
	if i := strings.IndexAny(line, ";#"); i >= 0 {
		line = line[:i]
	}
	return variable.ReplaceAllStringFunc(strings.TrimSpace(line), func(v string) string { return os.Getenv(v[2 : len(v)-1]) })
}

// parser makes the jobs of sections and options, which come from a file or from a command line.
type parser struct {
	syntax Syntax
	jf     *JobFile
	global Job
	job    *Job // of the section at hand; nil in [global] and before the first one
}

func newParser(x Syntax, name string) *parser {
	return &parser{syntax: x, jf: &JobFile{Name: name}, global: defaults()}
}

// section begins a section, which is a job unless it is called global. A job has what [global] said
// up to here.
func (p *parser) section(name string, line int) {
	p.job = nil
	if !strings.EqualFold(name, "global") {
		j := p.global
		p.job = &j
		p.job.Name, p.job.Line = name, line
		p.jf.Jobs = append(p.jf.Jobs, p.job)
	}
}

// option sets an option of the section at hand; where is its place in a note.
func (p *parser) option(where, key, val string, has bool) error {
	note := func(format string, a ...any) {
		p.jf.Notes = append(p.jf.Notes, where+": "+fmt.Sprintf(format, a...))
	}
	if why := p.syntax.skips(key); why != "" {
		note("option %s %s", key, why)
		return nil
	}
	if key == "verify" && slices.Contains(strings.Fields(otherSums), val) {
		note("verify=%s is done as crc32c", val)
	}
	if why := standIn[val]; key == "ioengine" && why != "" {
		note("%s", standInNote(val, why))
	}
	target, list := &p.global, &p.jf.Global
	if p.job != nil {
		target, list = p.job, &p.job.Options
	}
	if err := target.set(key, val, has); err != nil {
		return err
	}
	*list = append(*list, stats.Option{Key: key, Value: val})
	return nil
}

func standInNote(engine, why string) string {
	return fmt.Sprintf("ioengine=%s is done as psync: %s", engine, why)
}

// jobs is the parsed jobs, checked; place is where a job stands, for errors.
func (p *parser) jobs(none error, place func(j *Job) string) (*JobFile, error) {
	if len(p.jf.Jobs) == 0 {
		return nil, fmt.Errorf("%s: %w", p.jf.Name, none)
	}
	for i, j := range p.jf.Jobs {
		err := j.check()
		if err == nil && j.WaitFor != "" && !slices.ContainsFunc(p.jf.Jobs[:i], func(o *Job) bool { return o.Name == j.WaitFor }) {
			err = fmt.Errorf("wait_for=%s: no job before this one has the name", j.WaitFor)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: job %s: %w", place(j), j.Name, err)
		}
	}
	return p.jf, nil
}

// Parse reads a job file; name is used in errors.
func (x Syntax) Parse(name string, r io.Reader) (*JobFile, error) {
	p := newParser(x, name)
	line, begun := 0, false
	at := func(line int) string { return fmt.Sprintf("%s:%d", name, line) }
	fail := func(err error) (*JobFile, error) { return nil, fmt.Errorf("%s: %w", at(line), err) }
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line++
		s := sc.Text()
		if line == 1 {
			s = strings.TrimPrefix(s, "\ufeff")
		}
		if s = clean(s); s == "" {
			continue
		}
		if s[0] == '[' {
			section, err := sectionOf(s)
			if err != nil {
				return fail(err)
			}
			p.section(section, line)
			begun = true
			continue
		}
		if !begun {
			if strings.ContainsRune(s, 0) || !utf8.ValidString(s) {
				return fail(errNoText)
			}
			return fail(fmt.Errorf("option %q before the first section", shortened(s)))
		}
		key, val, has := strings.Cut(s, "=")
		if err := p.option(at(line), strings.TrimSpace(key), strings.TrimSpace(val), has); err != nil {
			return fail(err)
		}
	}
	if err := sc.Err(); errors.Is(err, bufio.ErrTooLong) {
		line++
		return fail(errNoText)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p.jobs(errors.New("no job: want a section other than [global]"), func(j *Job) string { return at(j.Line) })
}

var errNoText = errors.New("no text, want a job file; an image goes to --image")

// shortened is the begin of a line that is shown in an error.
func shortened(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "..."
	}
	return s
}

// sectionOf is the name in a line that begins with "[".
func sectionOf(s string) (string, error) {
	name, rest, ok := strings.Cut(s[1:], "]")
	if !ok {
		return "", fmt.Errorf("section %q has no closing ]", s)
	}
	if name = strings.TrimSpace(name); name == "" {
		return "", errors.New("section without a name")
	}
	if rest = strings.TrimSpace(rest); rest != "" {
		return "", fmt.Errorf("%q after section [%s]", rest, name)
	}
	return name, nil
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
	for d, n := range j.Rate {
		if n > 0 && j.RateIOPS[d] > 0 {
			return fmt.Errorf("rate and rate_iops exclude each other")
		}
	}
	if j.Skip%int64(j.minBS()) != 0 {
		return fmt.Errorf("rw=%s:%d: want a multiple of the smallest block, %d", j.RW, j.Skip, j.minBS())
	}
	if j.NumFiles > 1 && j.Filenames == nil && !strings.Contains(j.NameFormat, "$filenum") {
		return fmt.Errorf("filename_format %q has no $filenum, want it for nrfiles %d", j.NameFormat, j.NumFiles)
	}
	if j.Size > 0 && j.Size < int64(j.minBS()) {
		return fmt.Errorf("size %d is smaller than one block of %d", j.Size, j.minBS())
	}
	if j.Flow > 0 && j.WaitFor != "" {
		return fmt.Errorf("flow and wait_for exclude each other: the job would wait for one that waits for its share")
	}
	if err := j.checkEngine(); err != nil {
		return err
	}
	if j.Verify && j.BlockAlign > 0 {
		return fmt.Errorf("verify and blockalign exclude each other")
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

// checkEngine looks at what an engine that moves no data cannot do.
func (j *Job) checkEngine() error {
	switch {
	case j.Engine == FTruncate && j.Read:
		return fmt.Errorf("ioengine ftruncate is for rw=write and randwrite, have %s", j.RW)
	case (j.Engine == FTruncate || j.Engine == Null) && j.Verify:
		return fmt.Errorf("ioengine %s keeps no data, so verify has nothing to read", j.Engine)
	case j.fills() && j.Verify && j.DoVerify:
		return errors.New("fill_device with verify needs a size, or do_verify=0")
	case j.FillDevice && j.Random && j.Size == 0:
		return errors.New("fill_device with random offsets needs a size")
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
	if j.Sync {
		f |= kiocb.DSync
	}
	return f
}

// syncs reports whether the job waits for its writes to be durable.
func (j *Job) syncs() bool { return j.Fsync > 0 || j.Fdatasync > 0 || j.Sync }

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

// ignores says whether a request that ended with err is only counted.
func (j *Job) ignores(dir int, err error) bool {
	return j.IgnoreAll[dir] || slices.ContainsFunc(j.IgnoreError[dir], func(no errno.Errno) bool { return errors.Is(err, no) })
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

// unit is what the offsets of the job's requests are multiples of, in bytes.
func (j *Job) unit() int64 {
	if j.Random && j.BlockAlign > 0 {
		return int64(j.BlockAlign)
	}
	return int64(j.minBS())
}

func (j *Job) maxBS(dir int) int {
	n := 0
	for _, b := range j.BS[dir] {
		n = max(n, b.Size)
	}
	return n
}

// Set changes an option of every job, as if the job file had said so: a command line scales a job
// so.
func (jf *JobFile) Set(key, val string) error {
	if err := jf.change(key, val); err != nil {
		return err
	}
	return jf.check()
}

func (jf *JobFile) change(key, val string) error {
	if why := (Syntax{}).skips(key); why != "" {
		jf.Notes = append(jf.Notes, fmt.Sprintf("option %s %s", key, why))
		return nil
	}
	if why := standIn[val]; key == "ioengine" && why != "" {
		jf.Notes = append(jf.Notes, standInNote(val, why))
	}
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

// Files is how many files each task has.
func (j *Job) Files() int {
	if j.Filenames != nil {
		return len(j.Filenames)
	}
	return j.NumFiles
}

// Filename is the job's filename=; empty without one.
func (j *Job) Filename() string { return strings.Join(j.Filenames, ":") }

// fileNames are the files of task n of the job, as fio names them.
func (j *Job) fileNames(n int) []string {
	names := slices.Clone(j.Filenames)
	for i := len(names); i < j.Files(); i++ {
		names = append(names, strings.NewReplacer("$jobname", j.Name, "$jobnum", strconv.Itoa(n), "$filenum", strconv.Itoa(i)).Replace(j.NameFormat))
	}
	for i := range names {
		names[i] = path.Join(j.Directory, names[i])
	}
	return names
}
