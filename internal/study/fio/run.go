package fio

import (
	"btrlab/internal/sched"
	"btrlab/internal/study/stats"
)

const verifyHeaderLen = 40

func run(t *sched.Task, jf *JobFile, opt Options) (*stats.Run, error) { panic("fio: not there yet") }
