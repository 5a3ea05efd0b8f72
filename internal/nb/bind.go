package nb

import r "reflect"

// Binds are the functions and constants that cells see; a test holds the list against the package.
func Binds() map[string]r.Value {
	return map[string]r.Value{
		"Binds":         r.ValueOf(Binds),
		"Capstone":      r.ValueOf(Capstone),
		"Cells":         r.ValueOf(Cells),
		"Compare":       r.ValueOf(Compare),
		"Draw":          r.ValueOf(Draw),
		"Expect":        r.ValueOf(Expect),
		"Explore":       r.ValueOf(Explore),
		"ExploreOwn":    r.ValueOf(ExploreOwn),
		"Gantt":         r.ValueOf(Gantt),
		"InLinux":       r.ValueOf(InLinux),
		"LinuxExhibits": r.ValueOf(LinuxExhibits),
		"Matrix":        r.ValueOf(Matrix),
		"MaxCPUs":       r.ValueOf(MaxCPUs),
		"MaxDepth":      r.ValueOf(MaxDepth),
		"MaxDisk":       r.ValueOf(MaxDisk),
		"MaxPoints":     r.ValueOf(MaxPoints),
		"MaxRounds":     r.ValueOf(MaxRounds),
		"MaxSchedules":  r.ValueOf(MaxSchedules),
		"MaxSeconds":    r.ValueOf(MaxSeconds),
		"MaxVirtual":    r.ValueOf(MaxVirtual),
		"OwnDir":        r.ValueOf(OwnDir),
		"OwnRangeLock":  r.ValueOf(OwnRangeLock),
		"OwnPolicy":     r.ValueOf(OwnPolicy),
		"Policies":      r.ValueOf(Policies),
		"Preempt":       r.ValueOf(Preempt),
		"Profile":       r.ValueOf(Profile),
		"Replay":        r.ValueOf(Replay),
		"ReplayOwn":     r.ValueOf(ReplayOwn),
		"Reproduce":     r.ValueOf(Reproduce),
		"Scale":         r.ValueOf(Scale),
		"Scenarios":     r.ValueOf(Scenarios),
		"ServeDisk":     r.ValueOf(ServeDisk),
		"Surface":       r.ValueOf(Surface),
		"Replace":       r.ValueOf(Replace),
		"Template":      r.ValueOf(Template),
		"TryOwn":        r.ValueOf(TryOwn),
		"Types":         r.ValueOf(Types),
	}
}

// Types are the types that cells see.
func Types() map[string]r.Type {
	return map[string]r.Type{
		"Comparison":  r.TypeFor[Comparison](),
		"Disk":        r.TypeFor[Disk](),
		"DiskOptions": r.TypeFor[DiskOptions](),
		"Exploration": r.TypeFor[Exploration](),
		"Figure":      r.TypeFor[Figure](),
		"Graded":      r.TypeFor[Graded](),
		"Led":         r.TypeFor[Led](),
		"Options":     r.TypeFor[Options](),
		"Own":         r.TypeFor[Own](),
		"Page":        r.TypeFor[Page](),
		"Scaling":     r.TypeFor[Scaling](),
		"Surfaced":    r.TypeFor[Surfaced](),
		"Table":       r.TypeFor[Table](),
		"Tested":      r.TypeFor[Tested](),
		"Timeline":    r.TypeFor[Timeline](),
		"Waits":       r.TypeFor[Waits](),
		"Window":      r.TypeFor[Window](),
	}
}
