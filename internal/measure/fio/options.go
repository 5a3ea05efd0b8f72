package fio

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/prose"
)

type option struct {
	name    string
	aliases []string
	flag    bool // may stand without a value
	set     func(j *Job, v string) error
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

// otherSums are fio's other values of verify=, which are taken for crc32c: a note says so.
const otherSums = "md5 crc64 crc32 crc16 crc7 xxhash sha512 sha256 sha1 sha3-224 sha3-256 sha3-384 sha3-512 meta"

// maxFiles is the most files of a task.
const maxFiles = 1 << 20

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

// perDir calls f with the part of "read,write,trim" for each direction; one part is for both, an
// empty part leaves the direction as it is.
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

// maxSizes bounds the block sizes of bsrange.
const maxSizes = 4096

// parseBSRange reads "4k-64k": every multiple of the smaller size is as likely as any other.
func parseBSRange(v string) ([]BlockShare, error) {
	from, to, ok := strings.Cut(v, "-")
	lo, err := parseBlockSize(from)
	if err != nil || !ok {
		return nil, wantError("a range of block sizes such as 4k-64k")
	}
	hi, err := parseBlockSize(to)
	if err != nil {
		return nil, err
	}
	if hi < lo || hi/lo > maxSizes {
		return nil, wantError(fmt.Sprintf("a range whose end is 1 to %d times its begin", maxSizes))
	}
	var out []BlockShare
	for n := lo; n <= hi; n += lo {
		out = append(out, BlockShare{Size: n})
	}
	return out, nil
}

// inert are fio's options that change nothing of what btrlab does, each with the reason. A job file
// may have them; the run says so.
var inert = map[string]string{}

func init() {
	for why, names := range map[string]string{
		"btrlab always measures latencies":                                    "gtod_reduce disable_lat disable_clat disable_slat disable_bw_measurement clocksource gtod_cpu unified_rw_reporting",
		"the percentiles are fio's defaults":                                  "clat_percentiles lat_percentiles slat_percentiles percentile_list significant_figures",
		"logs are of latency, bandwidth and iops, with fio's default columns": "write_hist_log log_hist_msec log_hist_coarseness log_max_value log_prio log_compression log_store_compressed log_unix_epoch bwavgtime iopsavgtime",
		"offsets are the same every time; randseed= changes them":             "randrepeat allrandrepeat random_generator",
		"the Go scheduler places the tasks":                                   "cpus_allowed cpus_allowed_policy cpumask numa_cpu_nodes numa_mem_policy nice prio prioclass cmdprio_percentage cmdprio_class cmdprio cmdprio_bssplit cgroup cgroup_weight cgroup_nodelete uid gid",
		"files stay":                                                          "unlink unlink_each_loop allow_file_create allow_mounted_write create_serialize create_fsync create_on_open overwrite file_append fadvise_hint",
		"buffers are random and differ from write to write":                   "refill_buffers scramble_buffers zero_buffers buffer_compress_percentage buffer_compress_chunk dedupe_percentage dedupe_mode dedupe_global dedupe_working_set_percentage buffer_pattern randrepeat_buffers",
		"memory is the Go runtime's":                                          "mem iomem iomem_align mem_align lockmem hugepage-size",
		"the ring is a model":                                                 "sqthread_poll sqthread_poll_cpu registerfiles fixedbufs nonvectored uncached userspace_reap libaio_vectored",
		"each task submits its own requests":                                  "io_submit_mode",
		"every block that was written is checked once, at the end":            "verify_fatal verify_dump verify_backlog verify_backlog_batch verify_async verify_async_cpus verifysort verify_state_save verify_state_load verify_only verify_pattern verify_interval verify_write_sequence error_dump",
		"RWF_ATOMIC is about a power cut, and none comes":                     "atomic",
		"no job ends because it is steady":                                    "steadystate steadystate_duration steadystate_ramp_time steadystate_check_interval ss ss_dur ss_ramp",
		"no job ends because it is slow":                                      "exec_prerun exec_postrun ratemin rate_min ratecycle rate_cycle rate_iops_min",
		"a job that has had its share waits for the others":                   "flow_sleep",
		"all files of a task stay open":                                       "openfiles",
		"devices here have no write streams":                                  "write_hint",
		"":                                                                    "kb_base unit_base profile ioscheduler disk_util eta eta_interval status_interval minimal",
	} {
		for _, n := range strings.Fields(names) {
			inert[n] = why
		}
	}
}

var options = []option{
	{name: "name", set: func(j *Job, v string) error { j.Name = v; return nil }},
	{name: "description", set: func(j *Job, v string) error { j.Description = v; return nil }},
	{name: "filename", set: func(j *Job, v string) error {
		// A colon of a name has a backslash.
		names := strings.Split(strings.ReplaceAll(v, `\:`, "\x00"), ":")
		for i := range names {
			names[i] = strings.ReplaceAll(names[i], "\x00", ":")
		}
		if slices.Contains(names, "") {
			return wantError("file names joined by ':'")
		}
		j.Filenames = names
		return nil
	}},
	{name: "filename_format", set: func(j *Job, v string) error { j.NameFormat = v; return nil }},
	intOption("nrfiles", 1, maxFiles, func(j *Job, n int64) { j.NumFiles = int(n) }, "nr_files"),
	{name: "file_service_type", set: func(j *Job, v string) error {
		s, err := parseService(v)
		if err == nil {
			j.Service = s
		}
		return err
	}},
	{name: "directory", set: func(j *Job, v string) error { j.Directory = v; return nil }},
	{name: "rw", aliases: []string{"readwrite"}, set: func(j *Job, v string) error {
		base, mod, has := strings.Cut(v, ":")
		j.Read, j.Write, j.Random = false, false, false
		switch base {
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
			base = "rw"
		case "randrw":
			j.Read, j.Write, j.Random = true, true, true
		default:
			return wantError("read, write, randread, randwrite, rw or randrw")
		}
		j.RW, j.Skip, j.Follow = base, 0, 1
		if !has {
			return nil
		}
		if j.Random {
			n, err := parseInt(mod, 1, math.MaxInt32)
			j.Follow = int(n)
			return err
		}
		n, err := parseSize(strings.TrimPrefix(mod, "-"))
		if j.Skip = n; strings.HasPrefix(mod, "-") {
			j.Skip = -n
		}
		return err
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
	{name: "bsrange", aliases: []string{"blocksize_range"}, set: func(j *Job, v string) error {
		return perDir(v, func(dir int, p string) error {
			s, err := parseBSRange(p)
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
	{name: "blockalign", aliases: []string{"ba"}, set: func(j *Job, v string) error {
		n, err := parseBlockSize(v)
		if err == nil {
			j.BlockAlign = n
		}
		return err
	}},
	{name: "filesize", set: func(j *Job, v string) error {
		from, to, isRange := strings.Cut(v, "-")
		lo, err := parseSize(from)
		hi := lo
		if isRange && err == nil {
			hi, err = parseSize(to)
		}
		if err == nil && hi < lo {
			err = wantError("a range whose end is not before its begin")
		}
		if err == nil {
			j.FileSizeMin, j.FileSizeMax = lo, hi
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
	{name: "offset_increment", set: func(j *Job, v string) error {
		n, err := parseSize(v)
		if err == nil {
			j.OffsetStep = n
		}
		return err
	}},
	intOption("numjobs", 1, 4096, func(j *Job, n int64) { j.NumJobs = int(n) }),
	boolOption("thread", func(j *Job) *bool { return &j.Thread }, "threads"),
	intOption("loops", 1, math.MaxInt32, func(j *Job, n int64) { j.Loops = int(n) }),
	{name: "startdelay", set: func(j *Job, v string) error {
		d, err := parseTime(v)
		if err == nil {
			j.StartDelay = d
		}
		return err
	}},
	{name: "thinktime", set: func(j *Job, v string) error {
		d, err := parseTimeIn(v, time.Microsecond)
		if err == nil && d > math.MaxInt32*time.Microsecond {
			err = wantError("2147483647us, which is 35 minutes, or less")
		}
		if err == nil {
			j.Think = d
		}
		return err
	}},
	intOption("thinktime_blocks", 1, math.MaxInt32, func(j *Job, n int64) { j.ThinkBlocks = int(n) }),
	{name: "wait_for", set: func(j *Job, v string) error { j.WaitFor = v; return nil }},
	intOption("flow", 0, 1000, func(j *Job, n int64) { j.Flow = int(n) }),
	intOption("flow_id", 0, math.MaxInt32, func(j *Job, n int64) { j.FlowID = int(n) }),
	boolOption("exitall", func(j *Job) *bool { return &j.ExitAll }),
	{name: "exit_what", set: func(j *Job, v string) error {
		i := slices.Index(exitNames[:], v)
		if i < 0 {
			return wantError("group, stonewall or all")
		}
		j.ExitWhat = Exit(i)
		return nil
	}},
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
	{name: "continue_on_error", set: func(j *Job, v string) error {
		dirs, ok := map[string][2]bool{"none": {}, "0": {}, "read": {DirRead: true}, "write": {DirWrite: true}, "io": {true, true}, "all": {true, true}, "1": {true, true}}[v]
		if !ok {
			return wantError("none, read, write, io or all")
		}
		j.IgnoreAll = dirs
		return nil
	}},
	intOption("fsync", 0, math.MaxInt32, func(j *Job, n int64) { j.Fsync = int(n) }),
	intOption("fdatasync", 0, math.MaxInt32, func(j *Job, n int64) { j.Fdatasync = int(n) }),
	{name: "sync", flag: true, set: func(j *Job, v string) error {
		switch v {
		case "sync", "dsync":
			j.Sync = true
			return nil
		case "none":
			j.Sync = false
			return nil
		}
		on, err := parseBool(v)
		if err != nil {
			return wantError("none, 0, sync, 1 or dsync")
		}
		j.Sync = on
		return nil
	}},
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
		if standIn[v] != "" {
			j.Engine = PSync
			return nil
		}
		return wantEngine
	}},
	boolOption("group_reporting", func(j *Job) *bool { return &j.GroupReporting }),
	boolOption("new_group", func(j *Job) *bool { return &j.NewGroup }),
	boolOption("stonewall", func(j *Job) *bool { return &j.Stonewall }, "wait_for_previous"),
	intOption("rwmixread", 0, 100, func(j *Job, n int64) { j.RWMixRead = int(n) }),
	intOption("rwmixwrite", 0, 100, func(j *Job, n int64) { j.RWMixRead = 100 - int(n) }),
	{name: "rate", set: func(j *Job, v string) error {
		return perDir(v, func(dir int, p string) error {
			n, err := parseSize(p)
			if err == nil {
				j.Rate[dir] = n
			}
			return err
		})
	}},
	{name: "rate_process", set: func(j *Job, v string) error {
		if v != "linear" && v != "poisson" {
			return wantError("linear or poisson")
		}
		j.Poisson = v == "poisson"
		return nil
	}},
	{name: "random_distribution", set: func(j *Job, v string) error {
		d, err := parseDistribution(v)
		if err == nil {
			j.Distribution = d
		}
		return err
	}},
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
		case "crc32c", "crc32c-intel":
			j.Verify = true
		case "0":
			j.Verify = false
		default:
			if !slices.Contains(strings.Fields(otherSums), v) {
				return wantError("crc32c or 0")
			}
			j.Verify = true
		}
		return nil
	}},
	boolOption("fill_device", func(j *Job) *bool { return &j.FillDevice }, "fill_fs"),
	logOption("write_bw_log", func(l *Logs) *LogName { return &l.BW }),
	logOption("write_lat_log", func(l *Logs) *LogName { return &l.Lat }),
	logOption("write_iops_log", func(l *Logs) *LogName { return &l.IOPS }),
	intOption("log_avg_msec", 0, math.MaxInt32, func(j *Job, n int64) { j.Logs.Window = time.Duration(n) * time.Millisecond }),
	boolOption("log_offset", func(j *Job) *bool { return &j.Logs.Offset }),
	{name: "per_job_logs", flag: true, set: func(j *Job, v string) error {
		each, err := parseBool(v)
		if err == nil {
			j.Logs.One = !each
		}
		return err
	}},
	intOption("random_sequence_stride", 0, 1, func(j *Job, n int64) { j.SequenceStride = n == 1 }),
	boolOption("do_verify", func(j *Job) *bool { return &j.DoVerify }),
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

func suggest(key string) string {
	if n := prose.Nearest(key, OptionNames()); n != "" {
		return fmt.Sprintf(" (did you mean %q?)", n)
	}
	return "; known options: " + strings.Join(OptionNames(), " ")
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
