package stats

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// object is a JSON object whose keys keep their order: fio's readers do not need it, people do.
type object []member

type member struct {
	key string
	val any // object, []object, string, int64, uint64, int, float64
}

func (o *object) add(key string, val any) { *o = append(*o, member{key, val}) }

// writeValue writes v as fio's json.c does: two spaces a level, blanks around the colon, floats
// with six decimals.
func writeValue(w *bufio.Writer, v any, indent int) {
	pad := func(n int) { w.WriteString(strings.Repeat("  ", n)) }
	switch v := v.(type) {
	case object:
		if len(v) == 0 {
			w.WriteString("{\n")
			pad(indent)
			w.WriteString("}")
			return
		}
		w.WriteString("{\n")
		for i, m := range v {
			pad(indent + 1)
			writeString(w, m.key)
			w.WriteString(" : ")
			writeValue(w, m.val, indent+1)
			if i < len(v)-1 {
				w.WriteByte(',')
			}
			w.WriteByte('\n')
		}
		pad(indent)
		w.WriteByte('}')
	case []object:
		w.WriteString("[\n")
		for i, o := range v {
			pad(indent + 1)
			writeValue(w, o, indent+1)
			if i < len(v)-1 {
				w.WriteByte(',')
			}
			w.WriteByte('\n')
		}
		pad(indent)
		w.WriteByte(']')
	case string:
		writeString(w, v)
	case float64:
		w.WriteString(strconv.FormatFloat(v, 'f', 6, 64))
	default:
		fmt.Fprint(w, v)
	}
}

func writeString(w *bufio.Writer, s string) {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always can
	}
	w.Write(b)
}

// WriteJSON writes the run in the shape of fio --output-format=json; plus adds the bins of json+.
func (r *Run) WriteJSON(w io.Writer, plus bool) error {
	b := bufio.NewWriter(w)
	writeValue(b, r.json(plus), 0)
	b.WriteByte('\n')
	return b.Flush()
}

func (r *Run) json(plus bool) object {
	var o object
	o.add("fio version", Version)
	o.add("timestamp", r.End.Unix())
	o.add("timestamp_ms", r.End.UnixMilli())
	o.add("time", r.End.Format(time.ANSIC))
	if len(r.Global) > 0 {
		o.add("global options", optionObject(r.Global))
	}
	jobs := []object{}
	groups := r.groups()
	for _, j := range r.Jobs {
		jobs = append(jobs, r.jobJSON(j, groups[j.GroupID], plus))
	}
	o.add("jobs", jobs)
	disks := []object{}
	for _, d := range r.Disks {
		disks = append(disks, object{{"name", d.Name}, {"read_ios", d.ReadIOs}, {"write_ios", d.WriteIOs},
			{"read_merges", d.ReadMerges}, {"write_merges", d.WriteMerges}, {"read_ticks", d.ReadTicks},
			{"write_ticks", d.WriteTicks}, {"in_queue", d.InQueueMs}, {"util", d.Util}})
	}
	o.add("disk_util", disks)
	return o
}

// optionObject leaves flags without a value out, as fio does. An option that a section has again
// has its last value, and a file name all of them, as filename=a:b has: a reader of JSON may keep
// one of two equal keys, and not the same one as another reader.
func optionObject(list []Option) object {
	at := map[string]int{}
	o := object{}
	for _, p := range list {
		i, again := at[p.Key]
		switch {
		case p.Value == "":
		case !again:
			at[p.Key] = len(o)
			o.add(p.Key, p.Value)
		case p.Key == "filename":
			o[i].val = fmt.Sprint(o[i].val, ":", p.Value)
		default:
			o[i].val = p.Value
		}
	}
	return o
}

func (r *Run) jobJSON(j *Job, g *group, plus bool) object {
	var o object
	o.add("jobname", j.Name)
	o.add("groupid", j.GroupID)
	o.add("error", j.Errno)
	o.add("eta", 0)
	o.add("elapsed", r.ElapsedNs/1e9+1)
	if j.Desc != "" {
		o.add("desc", j.Desc)
	}
	o.add("job options", optionObject(j.Options))
	o.add("read", j.Read.json(g.bytesPerSec(0), plus))
	o.add("write", j.Write.json(g.bytesPerSec(1), plus))
	o.add("trim", new(Dir).json(0, plus))
	o.add("sync", object{{"total_ios", j.Sync.n}, {"lat_ns", j.Sync.json(true, plus)}})
	o.add("job_runtime", j.RunNs/1e6)
	o.add("usr_cpu", percent(j.UserNs, j.RunNs))
	o.add("sys_cpu", percent(j.SysNs, j.RunNs))
	o.add("ctx", j.Ctx)
	o.add("majf", j.Majf)
	o.add("minf", j.Minf)
	ios, _ := j.Total()
	o.add("iodepth_level", table(DepthLevels[:], j.depth(ios)))
	o.add("iodepth_submit", table(BatchLevels[:], shares(j.Submit[:])))
	o.add("iodepth_complete", table(BatchLevels[:], shares(j.Complete[:])))
	ns, us, ms := j.latencyShares()
	o.add("latency_ns", table(latencyNames[:10], ns[:]))
	o.add("latency_us", table(latencyNames[:10], us[:]))
	o.add("latency_ms", table(latencyNames[:], ms[:]))
	if j.IgnoresErrors {
		o.add("total_err", j.Ignored)
		o.add("first_error", j.FirstIgnored)
	}
	if j.Nowait != nil {
		o.add("nowait", j.Nowait.json())
	}
	if j.Log != nil {
		o.add("log", j.Log.json())
	}
	if j.Ring != nil {
		o.add("ring", j.Ring.json())
	}
	o.add("latency_depth", j.IODepth)
	o.add("latency_target", 0)
	o.add("latency_percentile", 100.0)
	o.add("latency_window", 0)
	return o
}

func (d *Dir) json(groupBPS float64, plus bool) object {
	bps := d.BytesPerSec()
	agg := 0.0
	if groupBPS > 0 {
		agg = min(100, d.BWKiB.Mean()*100/(groupBPS/1024))
	}
	return object{
		{"io_bytes", d.Bytes}, {"io_kbytes", d.Bytes >> 10}, {"bw_bytes", uint64(bps)}, {"bw", uint64(bps) >> 10},
		{"iops", d.IOPS()}, {"runtime", d.RunNs / 1e6}, {"total_ios", d.IOs}, {"short_ios", d.Short}, {"drop_ios", d.Dropped},
		{"slat_ns", d.Slat.json(false, plus)}, {"clat_ns", d.Clat.json(true, plus)}, {"lat_ns", d.Lat.json(false, plus)},
		{"bw_min", d.BWKiB.Min}, {"bw_max", d.BWKiB.Max}, {"bw_agg", agg}, {"bw_mean", d.BWKiB.Mean()},
		{"bw_dev", d.BWKiB.Stddev()}, {"bw_samples", d.BWKiB.N},
		{"iops_min", d.IOPSSamp.Min}, {"iops_max", d.IOPSSamp.Max}, {"iops_mean", d.IOPSSamp.Mean()},
		{"iops_stddev", d.IOPSSamp.Stddev()}, {"iops_samples", d.IOPSSamp.N},
	}
}

// json has percentiles, and bins for json+, only where fio has them: in what holds samples.
func (h *Hist) json(percentiles, plus bool) object {
	o := object{{"min", h.min}, {"max", h.max}, {"mean", h.Mean()}, {"stddev", h.Stddev()}, {"N", h.n}}
	if !percentiles || h.n == 0 {
		return o
	}
	var p object
	for _, q := range Percentiles {
		p.add(fmt.Sprintf("%f", q), h.Percentile(q))
	}
	o.add("percentile", p)
	if plus {
		bins := object{}
		for _, b := range h.Bins() {
			bins.add(strconv.FormatInt(b.Value, 10), b.Count)
		}
		o.add("bins", bins)
	}
	return o
}

func table(names []string, vals []float64) object {
	var o object
	for i, n := range names {
		o.add(n, vals[i])
	}
	return o
}
