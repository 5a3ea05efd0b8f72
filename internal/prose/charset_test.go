package prose

import "testing"

// The first variable that is set says the locale, and its end the charset.
func TestUTF8(t *testing.T) {
	for _, c := range []struct {
		all, ctype, lang string
		want             bool
	}{{"", "", "en_GB.UTF-8", true}, {"", "", "C.utf8", true}, {"", "UTF-8", "C", true}, {"C", "", "en_GB.UTF-8", false}, {"", "", "de_DE@euro", false}, {"POSIX", "", "", false},
		{"", "de_DE.ISO8859-1", "C.UTF-8", false}} {
		t.Setenv("LC_ALL", c.all)
		t.Setenv("LC_CTYPE", c.ctype)
		t.Setenv("LANG", c.lang)
		if have := UTF8(); have != c.want {
			t.Errorf("%+v: have %v", c, have)
		}
	}
}
