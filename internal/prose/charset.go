package prose

import (
	"cmp"
	"os"
	"runtime"
	"strings"
)

// UTF8 reports whether the locale has characters beyond ASCII: its charset is UTF-8. Without
// variables of a locale it is C, which has none, but on Windows, which has no such variables.
func UTF8() bool {
	locale := cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG"))
	if locale == "" {
		return runtime.GOOS == "windows"
	}
	charset := strings.ToLower(strings.ReplaceAll(locale, "-", ""))
	return strings.Contains(charset, ".utf8") || charset == "utf8" // macOS has LC_CTYPE=UTF-8
}
