package fio

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// Logs are the logs that a job asks for: write_bw_log=, write_lat_log= and write_iops_log=.
type Logs struct {
	BW, Lat, IOPS LogName
	Window        time.Duration // of log_avg_msec: a row is the mean of so long; 0: of one request
	Offset        bool          // rows have the offset, too
	One           bool          // the tasks of a job share a file
}

// LogName is the name of a log before its suffix; without one it is the job's.
type LogName struct {
	On   bool
	Name string
}

func (l *Logs) any() bool { return l.BW.On || l.Lat.On || l.IOPS.On }

func logOption(name string, field func(l *Logs) *LogName) option {
	return option{name: name, flag: true, set: func(j *Job, v string) error {
		*field(&j.Logs) = LogName{true, v}
		return nil
	}}
}

// The logs, by suffix.
const (
	logSlat = iota
	logClat
	logLat
	logBW
	logIOPS
)

var logSuffix = [...]string{"slat", "clat", "lat", "bw", "iops"}

// logRow is a line of a log.
type logRow struct {
	ms    int64 // since the task began
	value int64 // ns, kB/s of one request or KiB/s of a window, 1 or requests in a second
	dir   int
	bs    int
	off   int64
}

// window is what came since the last row of a log and direction.
type window struct {
	from   int64 // Now
	n, sum int64 // requests; ns or bytes
}

// logger is the logs of one task.
//
// Models fio stat.c: a row is time in ms, value, direction, block size, with log_offset the offset,
// and the priority, which is 0 here. Difference: a window ends with the first request after it,
// where fio's bandwidth and iops have a thread that looks at the clock.
type logger struct {
	job    *Job
	num    int // of the run's tasks
	epoch  int64
	rows   [len(logSuffix)][]logRow
	window [len(logSuffix)][2]window
}

// newLogger is nil if the job wants no logs or nobody takes them.
func (k *worker) newLogger() *logger {
	if !k.job.Logs.any() {
		return nil
	}
	if k.opt.Log == nil {
		notice(k.opt, "%s: there are no logs here", k.job.Name)
		return nil
	}
	return &logger{job: k.job, num: k.num}
}

func (l *logger) wants(kind int) bool {
	switch kind {
	case logBW:
		return l.job.Logs.BW.On
	case logIOPS:
		return l.job.Logs.IOPS.On
	}
	return l.job.Logs.Lat.On
}

// submitted logs how long a request took until it was submitted.
func (l *logger) submitted(u *unit, now int64) {
	l.add(logSlat, u, now, now-u.start)
}

// done logs the end of a request, which has moved all of u.whole.
func (l *logger) done(u *unit, now int64) {
	l.add(logClat, u, now, now-u.issued)
	l.add(logLat, u, now, now-u.start)
	bytes := int64(len(u.whole))
	if l.job.Logs.Window > 0 {
		l.add(logBW, u, now, bytes)
	} else {
		l.add(logBW, u, now, bytes*1_000_000/max(1, now-u.issued))
	}
	l.add(logIOPS, u, now, 1)
}

func (l *logger) add(kind int, u *unit, now, value int64) {
	if !l.wants(kind) {
		return
	}
	r := logRow{ms: (now - l.epoch) / 1e6, value: value, dir: u.dir, bs: len(u.whole), off: u.off - int64(len(u.whole)-len(u.left))}
	if l.job.Logs.Window == 0 {
		l.rows[kind] = append(l.rows[kind], r)
		return
	}
	w := &l.window[kind][u.dir]
	w.n++
	w.sum += value
	span := now - max(w.from, l.epoch)
	if span < int64(l.job.Logs.Window) {
		return
	}
	r.bs, r.off = 0, 0
	switch ms := span / 1e6; kind {
	case logBW:
		r.value = w.sum * 1000 / ms / 1024
	case logIOPS:
		r.value = w.n * 1000 / ms
	default:
		r.value = (w.sum + w.n/2) / w.n
	}
	l.rows[kind] = append(l.rows[kind], r)
	*w = window{from: now}
}

// ramped forgets what came before now, the end of ramp_time; times go on.
func (l *logger) ramped(now int64) {
	for kind := range l.rows {
		l.rows[kind] = nil
		l.window[kind] = [2]window{{from: now}, {from: now}}
	}
}

// name is that of a log's file.
func (l *logger) name(kind int) string {
	of := l.job.Logs.Lat.Name
	switch kind {
	case logBW:
		of = l.job.Logs.BW.Name
	case logIOPS:
		of = l.job.Logs.IOPS.Name
	}
	if of == "" {
		of = l.job.Name
	}
	if l.job.Logs.One {
		return fmt.Sprintf("%s_%s.log", of, logSuffix[kind])
	}
	return fmt.Sprintf("%s_%s.%d.log", of, logSuffix[kind], l.num+1)
}

// writeLogs writes the logs of all tasks; those that share a name are one file.
func writeLogs(waves []*wave, create func(name string) (io.WriteCloser, error)) error {
	rows := map[string][]string{}
	for _, w := range waves {
		for _, k := range w.workers {
			if k.logs != nil {
				k.logs.collect(rows)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		f, err := create(name)
		if err != nil {
			return fmt.Errorf("log %s: %w", name, err)
		}
		w := bufio.NewWriter(f)
		for _, l := range rows[name] {
			fmt.Fprintln(w, l)
		}
		err = w.Flush()
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return fmt.Errorf("log %s: %w", name, err)
		}
	}
	return nil
}

// collect adds the lines of the task's logs to those of their files.
func (l *logger) collect(rows map[string][]string) {
	for kind := range logSuffix {
		if l.wants(kind) && (kind != logSlat || l.job.Engine.async()) {
			rows[l.name(kind)] = append(rows[l.name(kind)], l.lines(kind)...)
		}
	}
}

func (l *logger) lines(kind int) (out []string) {
	for _, r := range l.rows[kind] {
		if l.job.Logs.Offset {
			out = append(out, fmt.Sprintf("%d, %d, %d, %d, %d, 0", r.ms, r.value, r.dir, r.bs, r.off))
		} else {
			out = append(out, fmt.Sprintf("%d, %d, %d, %d, 0", r.ms, r.value, r.dir, r.bs))
		}
	}
	return out
}
