// Package practice makes questions without end: a small scenario from a seed, a prediction that it
// asks for, and a judge that explores the scenario to decide. No answer is stored.
//
// A question is about a program of a few lines (package levels) or about operations on a file under
// a policy (package scenario, the real write path). It is of one of four kinds: a schedule that
// breaks the rule, or never; all that can be seen in one place at the end; the least number of
// preemptions that breaks the rule; the number of schedules.
//
// Levels of difficulty:
//
//	1  two tasks and one word, at most one lock; what breaks it, what can be seen
//	2  two or three tasks, two words, two locks: deadlocks; also how many schedules there are
//	3  three tasks, longer; also how few preemptions break it
//	4  the real write path: two operations on a file of a few pages under a policy
//	5  the same with writes of two batches, or three tasks
//
// Invariants:
//   - a level and a seed give the same question on every machine: the numbers come from a generator
//     of our own, and the explorer, which decides what is kept, does the same everywhere. A change
//     of the engine's steps may change questions of levels 4 and 5; a test with some questions in
//     full shows that;
//   - every question is exhausted within Limit schedules, and the empty schedule breaks nothing.
package practice
