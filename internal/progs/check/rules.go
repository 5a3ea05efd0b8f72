package check

import "slices"

// Rule is one thing that must hold on an image, by the name that findings carry.
type Rule struct {
	Name  string
	Doc   string
	Means string // to the user, when it is broken; of data it is said with the file
}

// Rules are all rules, in the order findings are listed; each stands in the file that finds it.
// Numbers are items of labs/reference 10.6.
var Rules = slices.Concat(superRules, treeRules, rootRules, chunkRules, extentRules, freeSpaceRules, quotaRules, uuidRules,
	dataRules, parityRules, fileRules, logRules)

// ruleMeans is Means by name.
var ruleMeans = func() map[string]string {
	m := map[string]string{}
	for _, r := range Rules {
		m[r.Name] = r.Means
	}
	return m
}()

var ruleOrder = func() map[string]int {
	m := map[string]int{}
	for i, r := range Rules {
		m[r.Name] = i
	}
	return m
}()
