package served

import "btrlab/internal/measure/stats"

// Conclude says in a sentence each what the rounds show of a policy beside the first one, by the
// interval of its ratio, as the comparison of a job does.
func Conclude(rows []Row) (list []string) {
	for _, r := range rows[1:] {
		list = append(list, stats.Compare(r.Rate, rows[0].Rate).Sentence(r.Policy, "requests a second", rows[0].Policy, ""))
	}
	return list
}
