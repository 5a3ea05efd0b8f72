package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Entry is one change of a reservation counter: Delta units more or less on Account for Owner.
type Entry struct {
	Seq     int64  // time or step
	Task    int32  // who
	Account string // "data.may_use", "metadata.may_use", "data.reserved", "outstanding_extents", ...
	Owner   int64  // inode number; 0 for nobody in particular
	Delta   int64
	What    string // where, for the reader
}

// Ledger checks that reservations are conserved: nobody gives back more than was taken, no sum passes its cap, what moves
// arrives, at rest nothing is held, and the counters of the file system say the same. The zero value is ready;
// Post is O(caps of the account).
type Ledger struct {
	owners map[holder]*balance
	totals map[string]*balance
	caps   []limit
	found  []string
}

type holder struct {
	account string
	owner   int64
}

type balance struct {
	n      int64
	raised Entry // the last entry that raised it
	caps   []int // totals only
}

type limit struct {
	name     string
	total    int64
	accounts []string
	sum      int64
	over     bool
}

// Reset forgets the entries and keeps the caps.
func (l *Ledger) Reset() {
	clear(l.owners)
	for _, b := range l.totals {
		b.n = 0
	}
	for i := range l.caps {
		l.caps[i].sum, l.caps[i].over = 0, false
	}
	l.found = l.found[:0]
}

// Cap demands that the accounts together never hold more than total.
func (l *Ledger) Cap(name string, total int64, accounts ...string) {
	c := limit{name: name, total: total, accounts: accounts}
	for _, a := range accounts {
		b := l.total(a)
		c.sum += b.n
		b.caps = append(b.caps, len(l.caps))
	}
	l.caps = append(l.caps, c)
}

func (l *Ledger) total(account string) *balance {
	b := l.totals[account]
	if b == nil {
		if l.totals == nil {
			l.totals, l.owners = map[string]*balance{}, map[holder]*balance{}
		}
		b = &balance{}
		l.totals[account] = b
	}
	return b
}

// Post enters e.
func (l *Ledger) Post(e Entry) {
	l.change(e)
	l.capped(e)
}

// Move takes e.Delta from e.Account and gives it to another account of the same owner, at one instant.
func (l *Ledger) Move(e Entry, to string) {
	if e.Delta < 0 {
		panic(fmt.Sprintf("oracle: a move of %d from %s to %s", e.Delta, e.Account, to))
	}
	out := e
	out.Delta = -e.Delta
	l.change(out)
	e.Account = to
	l.change(e)
	l.capped(e)
}

func (l *Ledger) change(e Entry) {
	t := l.total(e.Account)
	k := holder{e.Account, e.Owner}
	o := l.owners[k]
	if o == nil {
		o = &balance{}
		l.owners[k] = o
	}
	was := o.n
	o.n += e.Delta
	t.n += e.Delta
	if e.Delta > 0 {
		o.raised = e
	}
	if was >= 0 && o.n < 0 {
		l.found = append(l.found, fmt.Sprintf("reservation given back twice: %s of %s, have %d after %s took %d more",
			e.Account, ownerText(e.Owner), o.n, e.by(), -e.Delta))
	}
	for _, i := range t.caps {
		l.caps[i].sum += e.Delta
	}
}

func (l *Ledger) capped(e Entry) {
	for _, i := range l.total(e.Account).caps {
		c := &l.caps[i]
		if over := c.sum > c.total; over != c.over {
			if c.over = over; over {
				l.found = append(l.found, fmt.Sprintf("more promised than there is: %s (%s), have %d want at most %d, after %s",
					c.name, strings.Join(c.accounts, " + "), c.sum, c.total, e.by()))
			}
		}
	}
}

func (e Entry) by() string {
	s := fmt.Sprintf("task %d at %d", e.Task, e.Seq)
	if e.What != "" {
		s += " in " + e.What
	}
	return s
}

func ownerText(id int64) string {
	if id == 0 {
		return "no inode"
	}
	return fmt.Sprintf("inode %d", id)
}

// Have returns what an account holds.
func (l *Ledger) Have(account string) int64 {
	if b := l.totals[account]; b != nil {
		return b.n
	}
	return 0
}

// Findings returns what was wrong so far.
func (l *Ledger) Findings() []Finding { return findings(l.found) }

// Quiet returns what the accounts still hold, though nothing is in flight: each is a leak, or a debt.
func (l *Ledger) Quiet(accounts ...string) []Finding {
	var held []holder
	for k, b := range l.owners {
		if b.n != 0 && slices.Contains(accounts, k.account) {
			held = append(held, k)
		}
	}
	slices.SortFunc(held, func(a, b holder) int {
		return cmp.Or(cmp.Compare(a.account, b.account), cmp.Compare(a.owner, b.owner))
	})
	var out []string
	for _, k := range held {
		b := l.owners[k]
		s := fmt.Sprintf("reservation not at rest: %s of %s, have %d want 0", k.account, ownerText(k.owner), b.n)
		if b.n > 0 {
			s += fmt.Sprintf(", last raised by %s", b.raised.by())
		}
		out = append(out, s)
	}
	return findings(out)
}

// Agree compares an account with the counter the file system keeps.
func (l *Ledger) Agree(account string, have int64) []Finding {
	if want := l.Have(account); have != want {
		return findings([]string{fmt.Sprintf("reservation counter: %s, have %d want %d", account, have, want)})
	}
	return nil
}

func findings(texts []string) []Finding {
	var out []Finding
	for _, s := range texts {
		out = append(out, Finding{Text: s})
	}
	return out
}
