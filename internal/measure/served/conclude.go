package served

import (
	"fmt"
	"slices"
)

// Middle is the median of figures of rounds, of an even number the larger one in the middle.
func Middle(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// Conclude says in a sentence each what the rounds show of a policy beside the first one: a ratio
// counts if it lies on one side of 1 in every round.
func Conclude(rows []Row) (list []string) {
	base := rows[0]
	for _, r := range rows[1:] {
		lo, hi := slices.Min(r.Ratio), slices.Max(r.Ratio)
		switch {
		case len(r.Ratio) < 2:
			list = append(list, fmt.Sprintf("One round shows no spread: %s has %.2f times %s, want --rounds 3.", r.Policy, lo, base.Policy))
		case lo > 1 || hi < 1:
			list = append(list, fmt.Sprintf("%s is %.2f times %s, in every round (%.2f-%.2f).", r.Policy, Middle(r.Ratio), base.Policy, lo, hi))
		default:
			list = append(list, fmt.Sprintf("%s does not differ from %s by more than the rounds do (%.2f-%.2f).", r.Policy, base.Policy, lo, hi))
		}
	}
	return list
}
