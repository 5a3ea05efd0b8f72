package stats

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"btrlab/internal/errno"
)

// group is the sum of the reports of one group, for "Run status".
type group struct {
	id  int
	dir [2]struct {
		bytes        uint64
		minBW, maxBW float64
		minMs, maxMs int64
		any          bool
	}
}

func (g *group) bytesPerSec(dir int) float64 {
	d := &g.dir[dir]
	if d.maxMs == 0 {
		return 0
	}
	return float64(d.bytes) * 1000 / float64(d.maxMs)
}

func (r *Run) groups() map[int]*group {
	out := map[int]*group{}
	for _, j := range r.Jobs {
		g := out[j.GroupID]
		if g == nil {
			g = &group{id: j.GroupID}
			out[j.GroupID] = g
		}
		for i, d := range [2]*Dir{&j.Read, &j.Write} {
			if d.RunNs == 0 || d.IOs == 0 {
				continue
			}
			s := &g.dir[i]
			bw, ms := d.BytesPerSec(), max(1, d.RunNs/1e6)
			if !s.any {
				s.minBW, s.maxBW, s.minMs, s.maxMs, s.any = bw, bw, ms, ms, true
			}
			s.minBW, s.maxBW = min(s.minBW, bw), max(s.maxBW, bw)
			s.minMs, s.maxMs = min(s.minMs, ms), max(s.maxMs, ms)
			s.bytes += d.Bytes
		}
	}
	return out
}

func percent(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) * 100 / float64(whole)
}

// shares gives each column's percentage; what is there at all is at least 0.1, as fio shows it.
func shares(counts []uint64) []float64 {
	total := uint64(0)
	for _, c := range counts {
		total += c
	}
	return sharesOf(counts, total, 0.1)
}

func sharesOf(counts []uint64, total uint64, least float64) []float64 {
	out := make([]float64, len(counts))
	for i, c := range counts {
		if c > 0 && total > 0 {
			out[i] = max(least, float64(c)*100/float64(total))
		}
	}
	return out
}

func (j *Job) depth(ios uint64) []float64 { return sharesOf(j.Depth[:], ios, 0.1) }

// latencyNames are the upper bounds of the latency tables; the last two are of the one in ms.
var latencyNames = [12]string{"2", "4", "10", "20", "50", "100", "250", "500", "750", "1000", "2000", ">=2000"}

var latencyBounds = [11]int64{2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000}

// latencyShares is the distribution of total latency over fio's decades, in percent. It is taken
// from the histogram: a latency within 1/128 of a bound may count on its other side.
func (j *Job) latencyShares() (ns, us [10]float64, ms [12]float64) {
	var n [3][12]uint64
	total := uint64(0)
	for _, d := range [2]*Dir{&j.Read, &j.Write} {
		for _, b := range d.Lat.Bins() {
			unit, v := 0, b.Value
			for unit < 2 && v >= 1000 {
				unit, v = unit+1, v/1000
			}
			i := 0
			for i < len(latencyBounds) && v >= latencyBounds[i] {
				i++
			}
			n[unit][i] += b.Count
			total += b.Count
		}
	}
	copy(ns[:], sharesOf(n[0][:10], total, 0.01))
	copy(us[:], sharesOf(n[1][:10], total, 0.01))
	copy(ms[:], sharesOf(n[2][:], total, 0.01))
	return ns, us, ms
}

// num2str is fio's lib/num2str.c: at most digits figures, with prefixes of 1024 or 1000.
func num2str(n uint64, digits int, pow2 bool, unit string) string {
	prefix, thousand := []string{"", "k", "M", "G", "T", "P"}, uint64(1000)
	if pow2 {
		prefix, thousand = []string{"", "Ki", "Mi", "Gi", "Ti", "Pi"}, 1024
	}
	mod, post := uint64(math.MaxUint64), 0
	for post < len(prefix)-1 && len(strconv.FormatUint(n, 10)) > digits {
		mod = n % thousand
		n /= thousand
		post++
	}
	s := strconv.FormatUint(n, 10)
	if mod == math.MaxUint64 {
		return s + prefix[post] + unit
	}
	room := digits - len(s) - 1
	if room < 1 {
		if mod >= thousand/2 {
			n++
		}
		return strconv.FormatUint(n, 10) + prefix[post] + unit
	}
	frac := strconv.FormatFloat(float64(mod)/float64(thousand), 'f', room, 64)
	return s + "." + frac[2:] + prefix[post] + unit
}

type textWriter struct{ *bufio.Writer }

func (w textWriter) f(format string, a ...any) { fmt.Fprintf(w, format, a...) }

// WriteText writes the run as fio --output-format=normal.
func (r *Run) WriteText(out io.Writer) error {
	w := textWriter{bufio.NewWriter(out)}
	groups := r.groups()
	ids := []int{}
	for _, j := range r.Jobs {
		g := groups[j.GroupID]
		if len(ids) == 0 || ids[len(ids)-1] != g.id {
			ids = append(ids, g.id)
		}
		r.job(w, j, g)
	}
	for _, id := range ids {
		w.f("\nRun status group %d (all jobs):\n", id)
		for i, name := range [2]string{"   READ", "  WRITE"} {
			d := &groups[id].dir[i]
			if !d.any {
				continue
			}
			agg := uint64(groups[id].bytesPerSec(i))
			bw := func(b float64, pow2 bool) string { return num2str(uint64(b), 4, pow2, "B/s") }
			w.f("%s: bw=%s (%s), %s-%s (%s-%s), io=%s (%s), run=%d-%dmsec\n", name, bw(float64(agg), true), bw(float64(agg), false),
				bw(d.minBW, true), bw(d.maxBW, true), bw(d.minBW, false), bw(d.maxBW, false),
				num2str(d.bytes, 4, true, "B"), num2str(d.bytes, 4, false, "B"), d.minMs, d.maxMs)
		}
	}
	if len(r.Disks) > 0 {
		w.f("\nDisk stats (read/write):\n")
		for _, d := range r.Disks {
			w.f("  %s: ios=%d/%d, merge=%d/%d, ticks=%d/%d, in_queue=%d, util=%3.2f%%\n", d.Name, d.ReadIOs, d.WriteIOs,
				d.ReadMerges, d.WriteMerges, d.ReadTicks, d.WriteTicks, d.InQueueMs, d.Util)
		}
	}
	return w.Flush()
}

func (r *Run) job(w textWriter, j *Job, g *group) {
	w.f("\n%s: (groupid=%d, jobs=%d): err=%2d", j.Name, j.GroupID, j.Tasks, j.Errno)
	if j.Errno != 0 {
		w.f(" (%s)", errText(j))
	}
	w.f(": pid=%d: %s\n", os.Getpid(), r.End.Format(time.ANSIC))
	if j.Desc != "" {
		w.f("  Description  : [%s]\n", j.Desc)
	}
	for i, d := range [2]*Dir{&j.Read, &j.Write} {
		if d.IOs == 0 {
			continue
		}
		dirText(w, d, i, g.bytesPerSec(i))
	}
	ns, us, ms := j.latencyShares()
	latencies(w, "nsec", ns[:])
	latencies(w, "usec", us[:])
	latencies(w, "msec", ms[:])
	if j.Sync.n > 0 {
		w.f("  fsync/fdatasync/sync_file_range:\n")
		lat(w, "sync", &j.Sync)
		percentileText(w, "sync", &j.Sync)
	}
	w.f("  cpu          : usr=%3.2f%%, sys=%3.2f%%, ctx=%d, majf=%d, minf=%d\n",
		percent(j.UserNs, j.RunNs), percent(j.SysNs, j.RunNs), j.Ctx, j.Majf, j.Minf)
	ios, _ := j.Total()
	levels(w, "  IO depths    :", DepthLevels[:], j.depth(ios))
	levels(w, "     submit    :", BatchLevels[:], shares(j.Submit[:]))
	levels(w, "     complete  :", BatchLevels[:], shares(j.Complete[:]))
	w.f("     issued rwts: total=%d,%d,0,%d short=%d,%d,0,0 dropped=%d,%d,0,0\n", j.Read.IOs, j.Write.IOs, j.Sync.n,
		j.Read.Short, j.Write.Short, j.Read.Dropped, j.Write.Dropped)
	if j.Errno != 0 {
		n := j.VerifyErrors
		w.f("     errors    : total=%d, first_error=%d/<%s>\n", max(n, 1), j.Errno, errText(j))
	} else if j.IgnoresErrors {
		w.f("     errors    : total=%d, first_error=%d/<%s>\n", j.Ignored, j.FirstIgnored, ignoredText(j))
	}
	w.f("     latency   : target=0, window=0, percentile=100.00%%, depth=%d\n", j.IODepth)
}

func errText(j *Job) string {
	if j.ErrorText != "" {
		return j.ErrorText
	}
	return errno.Errno(j.Errno).Error()
}

// ignoredText is the words of the first error that did not end the job.
func ignoredText(j *Job) string {
	if j.FirstIgnored == 0 {
		return "Success"
	}
	return errno.Errno(j.FirstIgnored).Error()
}

func dirText(w textWriter, d *Dir, i int, groupBPS float64) {
	post := ""
	if i == 1 {
		post = "; 0 zone resets"
	}
	bw := uint64(d.BytesPerSec())
	w.f("  %s: IOPS=%s, BW=%s (%s)(%s/%dmsec)%s\n", [2]string{"read", "write"}[i], num2str(uint64(d.IOPS()), 4, false, ""),
		num2str(bw, 4, true, "B/s"), num2str(bw, 4, false, "B/s"), num2str(d.Bytes, 4, true, "B"), d.RunNs/1e6, post)
	if d.Slat.n > 0 {
		lat(w, "slat", &d.Slat)
	}
	lat(w, "clat", &d.Clat)
	lat(w, " lat", &d.Lat)
	percentileText(w, "clat", &d.Clat)
	if s := d.BWKiB; s.N > 0 {
		unit, div := "KiB", 1.0
		if s.Mean() > 1024*1024 {
			unit, div = "MiB", 1024
		}
		per := 100.0
		if groupBPS > 0 {
			per = min(100, s.Mean()*100/(groupBPS/1024))
		}
		w.f("   bw (%5s/s): min=%5d, max=%5d, per=%3.2f%%, avg=%5.02f, stdev=%5.02f, samples=%d\n", unit,
			uint64(float64(s.Min)/div), uint64(float64(s.Max)/div), per, s.Mean()/div, s.Stddev()/div, s.N)
	}
	if s := d.IOPSSamp; s.N > 0 {
		w.f("   iops        : min=%5d, max=%5d, avg=%5.02f, stdev=%5.02f, samples=%d\n", s.Min, s.Max, s.Mean(), s.Stddev(), s.N)
	}
}

// lat is fio's display_lat: the unit follows from how small and how wide the values are.
func lat(w textWriter, name string, h *Hist) {
	unit, div := "nsec", int64(1)
	dev := h.Stddev()
	switch {
	case h.min > 2e6 && h.max > 99999999 && dev > 1e6:
		unit, div = "msec", 1e6
	case h.min > 2000 && h.max > 99999 && dev > 1000:
		unit, div = "usec", 1000
	}
	w.f("    %s (%s): min=%s, max=%s, avg=%5.02f, stdev=%5.02f\n", name, unit, num2str(uint64(h.min/div), 6, false, ""),
		num2str(uint64(h.max/div), 6, false, ""), h.Mean()/float64(div), dev/float64(div))
}

// percentileText is fio's show_clat_percentiles.
func percentileText(w textWriter, name string, h *Hist) {
	if h.n == 0 {
		return
	}
	vals := make([]int64, len(Percentiles))
	for i, p := range Percentiles {
		vals[i] = h.Percentile(p)
	}
	lo, hi := vals[0], vals[len(vals)-1]
	unit, div := "nsec", int64(1)
	switch {
	case lo > 2e6 && hi > 99999999:
		unit, div = "msec", 1e6
	case lo > 2000 && hi > 99999:
		unit, div = "usec", 1000
	}
	width := max(5, len(strconv.FormatInt(hi/div, 10)))
	perLine := (80 - 7) / (2 + 10 + width)
	w.f("    %s percentiles (%s):\n     |", name, unit)
	for i, p := range Percentiles {
		if i > 0 && i%perLine == 0 {
			w.f("     |")
		}
		end := ","
		if i == len(Percentiles)-1 {
			end = "\n"
		} else if i%perLine == perLine-1 {
			end = ",\n"
		}
		w.f(" %5.2fth=[%*d]%s", p, width, (vals[i]+div-1)/div, end)
	}
}

func latencies(w textWriter, unit string, vals []float64) {
	var line []string
	flush := func() {
		if len(line) > 0 {
			w.f("  lat (%s)   : %s\n", unit, strings.Join(line, ", "))
			line = line[:0]
		}
	}
	for i, v := range vals {
		if v > 0 {
			line = append(line, fmt.Sprintf("%s=%3.2f%%", latencyNames[i], v))
		}
		if len(line) == 5 {
			flush()
		}
	}
	flush()
}

func levels(w textWriter, head string, names []string, vals []float64) {
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = fmt.Sprintf("%s=%3.1f%%", n, vals[i])
	}
	w.f("%s %s\n", head, strings.Join(parts, ", "))
}
