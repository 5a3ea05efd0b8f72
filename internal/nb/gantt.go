package nb

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/gantt"
	"btrlab/internal/measure/rig"
	"btrlab/internal/measure/seeds"
	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
)

// ganttCPUs are those of a machine that Options does not name.
const ganttCPUs = 8

// Gantt runs the job of o once under a policy in virtual time, and shows which task each CPU runs,
// who has each lock and how many tasks wait for it: of the whole run, and of short windows where
// the CPUs are busiest.
func Gantt(o Options, spec string) (Page, error) {
	o.Policies, o.Rounds = []string{spec}, 1
	o.CPUs = cmp.Or(o.CPUs, ganttCPUs)
	if err := o.complete(); err != nil {
		return Page{}, err
	}
	jf, err := o.job()
	if err != nil {
		return Page{}, err
	}
	rec := gantt.New(gantt.Options{CPUs: o.CPUs, Spans: gantt.DefaultSpans, At: -1})
	_, verr := vtime.Run(vtime.Machine{CPUs: o.CPUs, Handoff: vtime.DefaultHandoff, Watch: rec}, func(t *sched.Task) { err = ganttRun(t, &o, jf, rec) })
	if err = errors.Join(err, verr); err != nil {
		return Page{}, err
	}
	var b strings.Builder
	title := fmt.Sprintf("seed %s under %s: CPUs and locks", cmp.Or(o.Seed, seeds.Default), spec)
	err = rec.Write(&b, title, "")
	return Page{title, b.String(), 1500}, err
}

func ganttRun(t *sched.Task, o *Options, jf *fio.JobFile, rec *gantt.Recorder) (err error) {
	dirty := int64(o.DirtyMiB) << 20
	l, err := rig.Open(t, rig.Config{Model: o.Model, DirtyBackground: dirty / 2, DirtyLimit: dirty})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	t.Policy = o.Policies[0] // of the tasks that begin from here on
	x, err := l.OpenFS(t, o.Policies[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close(t)) }()
	files := rig.NewFiles(x, true)
	defer func() { err = errors.Join(err, files.Close(t)) }()
	_, err = fio.Run(t, jf, fio.Options{Open: files.Open, Began: rec.Begin, Ended: rec.End})
	return err
}
