package nb

import r "reflect"

// Binds are the functions and constants that cells see; a test holds the list against the package.
func Binds() map[string]r.Value {
	return map[string]r.Value{
		"Binds":      r.ValueOf(Binds),
		"Compare":    r.ValueOf(Compare),
		"MaxRounds":  r.ValueOf(MaxRounds),
		"MaxSeconds": r.ValueOf(MaxSeconds),
		"Policies":   r.ValueOf(Policies),
		"Profile":    r.ValueOf(Profile),
		"Types":      r.ValueOf(Types),
	}
}

// Types are the types that cells see.
func Types() map[string]r.Type {
	return map[string]r.Type{
		"Comparison": r.TypeFor[Comparison](),
		"Figure":     r.TypeFor[Figure](),
		"Options":    r.TypeFor[Options](),
		"Table":      r.TypeFor[Table](),
		"Waits":      r.TypeFor[Waits](),
	}
}
