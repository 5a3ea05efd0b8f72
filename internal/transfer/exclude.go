package transfer

import (
	"fmt"
	gopath "path"
	"strings"
)

// Exclude is a list of patterns of names that are not copied, nor what is below them: a pattern
// with a / is of the whole path below the source, any other of the last name. * and ? match no /.
type Exclude []string

// ParseExclude checks patterns.
func ParseExclude(patterns []string) (Exclude, error) {
	var x Exclude
	for _, p := range patterns {
		clean := strings.TrimSuffix(strings.TrimPrefix(p, "./"), "/")
		if _, err := gopath.Match(clean, ""); err != nil || strings.Trim(clean, "/") == "" {
			return nil, fmt.Errorf("bad pattern %q, want a name with *, ? or [a-z]", p)
		}
		x = append(x, clean)
	}
	return x, nil
}

// Has reports whether the path rel below the source, without a / before it, is left out.
func (x Exclude) Has(rel string) bool {
	for _, p := range x {
		name := rel
		if !strings.Contains(p, "/") {
			name = gopath.Base(rel)
		}
		if ok, _ := gopath.Match(strings.TrimPrefix(p, "/"), name); ok {
			return true
		}
	}
	return false
}
