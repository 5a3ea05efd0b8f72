package levels

import "slices"

// add is the increment of x in two steps.
func add(name string) Task { return Task{name, []string{"r = x", "x = r + 1"}} }

// repeat is add n times.
func repeat(name string, n int) Task { return Task{name, slices.Repeat(add(name).Lines, n)} }

// under is a task whose lines stand between a lock and an unlock.
func under(lock, name string, lines ...string) Task {
	return Task{name, append(append([]string{"lock " + lock}, lines...), "unlock "+lock)}
}

// dine is a philosopher who takes two forks.
func dine(name, first, second string) Task {
	return Task{name, []string{"lock " + first, "lock " + second, "unlock " + second, "unlock " + first}}
}

// All are the levels in the order in which they are played. Nobody writes to it.
var All = []*Level{
	{Name: "lost-update", Title: "Two increments", Points: 5,
		Story: "Two tasks add one to x. Each reads x, and then writes what it has read plus one. By default a task goes on until it ends: the empty schedule is a and then b.",
		Moral: "A schedule names the steps at which another task goes on: 3:1 lets task 1 go on at step 3. Task 0 could have gone on, so this is a preemption. What the rule does not allow is a violation.",
		Words: []Word{{"x", 0}}, Tasks: []Task{add("a"), add("b")}, Keeps: "x", Values: []int{2}},
	{Name: "three-lost", Title: "Three increments, two lost", Points: 10,
		Story: "Now there are three tasks, and losing one of the increments is not enough: lose two.",
		Moral: "One preemption is enough. To let task 2 go on where task 1 has ended is a choice, too, and the schedule names it, but it stops nobody: it is no preemption.",
		Words: []Word{{"x", 0}}, Tasks: []Task{add("a"), add("b"), add("c")}, Keeps: "x", Values: []int{2, 3}},
	{Name: "one-lock", Title: "One lock", Points: 8,
		Story: "The same two increments, with a lock around each. A task that waits for a lock cannot go on, and the default never picks it.",
		Moral: "The word for this is exhausted: every schedule was tried, and that is a proof. A thousand good runs are none.",
		Words: []Word{{"x", 0}}, Locks: []string{"m"}, Keeps: "x", Values: []int{2},
		Tasks: []Task{under("m", "a", "r = x", "x = r + 1"), under("m", "b", "r = x", "x = r + 1")}},
	{Name: "short-lock", Title: "The lock is let go between", Points: 10,
		Story: "Every access of x is under the lock now, and nothing else is.",
		Moral: "A lock keeps a promise only while it is held. What was read before it was let go may be old when it is held again.",
		Words: []Word{{"x", 0}}, Locks: []string{"m"}, Keeps: "x", Values: []int{2},
		Tasks: []Task{
			{"a", []string{"lock m", "r = x", "unlock m", "lock m", "x = r + 1", "unlock m"}},
			{"b", []string{"lock m", "r = x", "unlock m", "lock m", "x = r + 1", "unlock m"}}}},
	{Name: "two-locks", Title: "Two locks", Points: 8,
		Story: "Both tasks hold a lock around all that they do. It is not the same one.",
		Moral: "A lock excludes those that take it, and nobody else.",
		Words: []Word{{"x", 0}}, Locks: []string{"m", "n"}, Keeps: "x", Values: []int{2},
		Tasks: []Task{under("m", "a", "r = x", "x = r + 1"), under("n", "b", "r = x", "x = r + 1")}},
	{Name: "one-step", Title: "Without a lock", Points: 8,
		Story: "No lock at all, but the processor adds in one step: nobody can run between the read and the write.",
		Moral: "Where the whole operation is one step there is nothing to preempt. Most operations are longer than that.",
		Words: []Word{{"x", 0}}, Tasks: []Task{{"a", []string{"x += 1", "x += 1"}}, {"b", []string{"x += 1", "x += 1"}}}, Keeps: "x", Values: []int{4}},
	{Name: "three-each", Title: "Three each", Points: 13,
		Story: "Two tasks add one to x three times, in two steps each time: that makes six. That one gets lost is no news. Can x be 2?",
		Moral: "The first increment of one task was kept back until the other had one to go, and so on: a schedule may stop a task for as long as it likes.",
		Words: []Word{{"x", 0}}, Keeps: "x", Values: []int{3, 4, 5, 6}, Tasks: []Task{repeat("a", 3), repeat("b", 3)}},
	{Name: "two-forks", Title: "Dinner for two", Points: 8,
		Story: "Two philosophers and two forks. Each takes the left one, then the right one, which is the left one of the other.",
		Moral: "Each holds what the other waits for: a deadlock is a cycle of waits, and no schedule leads out of it. Two words, two locks or two pages do as well as forks.",
		Locks: []string{"f", "g"}, Tasks: []Task{dine("plato", "f", "g"), dine("hypatia", "g", "f")}},
	{Name: "three-forks", Title: "Dinner for three", Points: 10,
		Story: "Three philosophers and three forks. A cycle needs all of them.",
		Moral: "One preemption is enough again: stop the first with one fork in the hand. The last of them then waits for it, and to let another one go on stops nobody.",
		Locks: []string{"f", "g", "h"}, Tasks: []Task{dine("plato", "f", "g"), dine("hypatia", "g", "h"), dine("laozi", "h", "f")}},
	{Name: "fork-order", Title: "The forks have an order", Points: 8,
		Story: "The third one has changed his habits: everybody takes the fork that comes first in the alphabet first.",
		Moral: "Locks that are always taken in one order form no cycle. The file system has such an order for all of its locks: a page, then an extent, then a tree.",
		Locks: []string{"f", "g", "h"}, Tasks: []Task{dine("plato", "f", "g"), dine("hypatia", "g", "h"), dine("laozi", "f", "h")}},
	{Name: "lost-truncate", Title: "A write and a truncate", Points: 12,
		Story: "A file of 4 blocks. One task writes block 3 and makes the file at least so long; the other cuts it to 1 block. If the write comes first the size is 1, if it comes last it is 3.",
		Moral: "The writer puts back a size that is no longer so, and the truncate is lost though it has reported success. This is the race of lab 01, where it happens in the real write path.",
		Words: []Word{{"size", 4}}, Locks: []string{"m"}, Keeps: "size", Values: []int{1, 3},
		Tasks: []Task{
			{"write", []string{"lock m", "s = size", "unlock m", "size = max(s, 3)"}},
			under("m", "truncate", "size = 1")}},
}
