package scenario

import "btrlab/internal/study/oracle"

const k = 1024

// inodeClasses are what guards a file from other operations on it.
var inodeClasses = []string{"i_rwsem", "dio_wait", "range_lock", "page", "extent"}

// catalog is the scenarios.
var catalog = []*Scenario{
	{
		Name:   "truncate-race",
		About:  "a writer inside EOF and a truncate below it: the lost truncate of seed 002",
		Goal:   "make the truncate get lost",
		File:   File{Size: 16 * k, Cached: all(16 * k)},
		Tasks:  []Task{{"writer", []Op{Write(8*k, 8*k)}}, {"truncate", []Op{Truncate(4 * k)}}},
		Switch: inodeClasses,
		Rule:   oracle.Rule{Write: oracle.Request, Read: oracle.Page, Sizes: oracle.SizesWith},
	},
}

func all(n int64) []oracle.Range { return []oracle.Range{{Lo: 0, Hi: n}} }
