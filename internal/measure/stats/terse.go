package stats

import (
	"bufio"
	"io"
)

// tersePercentiles is how many places the terse line has for percentiles.
const tersePercentiles = 20

// WriteTerse writes the run as fio --output-format=terse does: version 3, a line for each report,
// its fields with semicolons between them. Times are microseconds, amounts and bandwidth KiB.
//
// Models fio stat.c:show_thread_status_terse_all().
func (r *Run) WriteTerse(out io.Writer) error {
	w := textWriter{bufio.NewWriter(out)}
	groups := r.groups()
	for _, j := range r.Jobs {
		w.f("3;%s;%s;%d;%d", Version, j.Name, j.GroupID, j.Errno)
		for i, d := range [2]*Dir{&j.Read, &j.Write} {
			d.terse(w, groups[j.GroupID].bytesPerSec(i))
		}
		w.f(";%f%%;%f%%;%d;%d;%d", percent(j.UserNs, j.RunNs), percent(j.SysNs, j.RunNs), j.Ctx, j.Majf, j.Minf)
		ios, _ := j.Total()
		for _, v := range j.depth(ios) {
			w.f(";%3.1f%%", v)
		}
		ns, us, ms := j.latencyShares()
		for _, v := range ns {
			us[0] += v // fio's table begins at 2 us, and has what is below in its first place
		}
		for _, v := range append(us[:], ms[:]...) {
			w.f(";%3.2f%%", v)
		}
		for _, d := range r.Disks {
			w.f(";%s;%d;%d;%d;%d;%d;%d;%d;%3.2f%%", d.Name, d.ReadIOs, d.WriteIOs, d.ReadMerges, d.WriteMerges, d.ReadTicks,
				d.WriteTicks, d.InQueueMs, d.Util)
		}
		if j.IgnoresErrors {
			w.f(";%d;%d", j.Ignored, j.FirstIgnored)
		}
		if j.Desc != "" {
			w.f(";%s", j.Desc)
		}
		w.f("\n")
	}
	return w.Flush()
}

func (d *Dir) terse(w textWriter, groupBPS float64) {
	w.f(";%d;%d;%d;%d", d.Bytes>>10, uint64(d.BytesPerSec())>>10, uint64(d.IOPS()), d.RunNs/1e6)
	d.Slat.terse(w)
	d.Clat.terse(w)
	for i := range tersePercentiles {
		switch {
		case i >= len(Percentiles):
			w.f(";0%%=0")
		case d.Clat.n == 0:
			w.f(";%f%%=0", Percentiles[i])
		default:
			w.f(";%f%%=%d", Percentiles[i], d.Clat.Percentile(Percentiles[i])/1000)
		}
	}
	d.Lat.terse(w)
	s, share := d.BWKiB, 0.0
	if s.N > 0 {
		share = 100
		if groupBPS > 0 {
			share = min(100, s.Mean()*100/(groupBPS/1024))
		}
	}
	w.f(";%d;%d;%f%%;%f;%f", s.Min, s.Max, share, s.Mean(), s.Stddev())
}

func (h *Hist) terse(w textWriter) {
	w.f(";%d;%d;%f;%f", h.min/1000, h.max/1000, h.Mean()/1000, h.Stddev()/1000)
}
