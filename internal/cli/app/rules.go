package app

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Rule is a row of what the flags of a verb ask of each other and of their values. Its sentence is
// the error when it is broken.
type Rule struct {
	broken func(cmd *cobra.Command) (bad bool, args []any)
	says   string
}

// Check returns the usage error of the first rule that is broken, or nil.
func Check(cmd *cobra.Command, rules ...Rule) error {
	for _, r := range rules {
		if bad, args := r.broken(cmd); bad {
			return Usagef(cmd, "%s", says(r.says, args...))
		}
	}
	return nil
}

// says is a sentence with as many of args as it has a place for.
func says(text string, args ...any) string {
	return fmt.Sprintf(text, args[:min(len(args), strings.Count(text, "%"))]...)
}

// Needs: each of flags goes with one of others at least. Both are names with spaces between them,
// and a place in the sentence is the flag's name.
func Needs(flags, others, says string) Rule {
	return Rule{says: says, broken: func(cmd *cobra.Command) (bool, []any) {
		l := given(cmd, flags)
		return len(l) > 0 && len(given(cmd, others)) == 0, []any{slices.Concat(l, []string{""})[0]}
	}}
}

// Excludes: none of flags goes with one of others.
func Excludes(flags, others, says string) Rule {
	return Rule{says: says, broken: func(cmd *cobra.Command) (bool, []any) {
		l := given(cmd, flags)
		return len(l) > 0 && len(given(cmd, others)) > 0, []any{slices.Concat(l, []string{""})[0]}
	}}
}

// NotEmpty: none of flags is given without a text, as by a variable that a script has not set.
func NotEmpty(flags, says string) Rule {
	return Rule{says: says, broken: func(cmd *cobra.Command) (bool, []any) {
		for name := range strings.FieldsSeq(flags) {
			if f := cmd.Flag(name); f.Changed && slices.Contains([]string{"", "[]"}, f.Value.String()) {
				return true, []any{name}
			}
		}
		return false, nil
	}}
}

// given are those of the names whose flag is on the command line: a list or a text that is not
// empty, a switch that is on, or any number.
func given(cmd *cobra.Command, names string) (l []string) {
	for name := range strings.FieldsSeq(names) {
		f := cmd.Flag(name)
		if f != nil && f.Changed && !slices.Contains([]string{"", "[]", "false"}, f.Value.String()) {
			l = append(l, name)
		}
	}
	return l
}

// AtLeast: have is not below least. The places in the sentence are both.
func AtLeast[T cmp.Ordered](have, least T, says string) Rule {
	return Not(!(have >= least), says, have, least) // nor NaN
}

// Above: have is more than bound. The places in the sentence are both.
func Above[T cmp.Ordered](have, bound T, says string) Rule {
	return Not(!(have > bound), says, have, bound)
}

// Within: have is between least and most. The places in the sentence are have and most.
func Within[T cmp.Ordered](have, least, most T, says string) Rule {
	return Not(!(have >= least && have <= most), says, have, most)
}

// OneOf: word is one of words. The places in the sentence are the word, and the words with commas
// between them.
func OneOf(word string, words []string, says string) Rule {
	return Not(!slices.Contains(words, word), says, word, strings.Join(words, ", "))
}

// Not: something does not hold.
func Not(bad bool, says string, args ...any) Rule {
	return Rule{says: says, broken: func(*cobra.Command) (bool, []any) { return bad, args }}
}

// If is the rule where on, else one that nothing breaks.
func (r Rule) If(on bool) Rule {
	if !on {
		return Not(false, "")
	}
	return r
}
