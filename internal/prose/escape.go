package prose

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape makes control characters, other characters that are not printed, and bytes that are no
// UTF-8 readable: \n, \x1b. Text that others have written may have some that retitle the window of
// a terminal, hide what was printed before, or turn the direction of a line.
func Escape(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
		s = s[n:]
	}
	return b.String()
}

// EscapeLines is Escape of a text of several lines: ends of lines and tabs stay.
func EscapeLines(s string) string {
	var b strings.Builder
	for from, i := 0, 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '\n' && s[i] != '\t' {
			continue
		}
		b.WriteString(Escape(s[from:i]))
		if from = i + 1; i < len(s) {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}
