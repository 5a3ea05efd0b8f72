package script

import (
	"errors"
	"strings"
)

// LineMax is the bytes of a line, at most.
const LineMax = 1 << 20

// Words splits a line at spaces. Quotes keep a word together; a backslash, not in single
// quotes, takes the next character as it is. A line that begins with # has no words.
func Words(line string) (words []string, err error) {
	var word strings.Builder
	in, quote, escaped := false, rune(0), false
	for i, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, in = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, in = r, true
		case r == ' ' || r == '\t' || r == '\r':
			if in {
				words = append(words, word.String())
				word.Reset()
				in = false
			}
		case r == '#' && len(words) == 0 && strings.TrimSpace(line[:i]) == "":
			return nil, nil
		default:
			word.WriteRune(r)
			in = true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("the line ends in a quote or after a backslash")
	}
	if in {
		words = append(words, word.String())
	}
	return words, nil
}
