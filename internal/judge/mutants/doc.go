// Package mutants holds the catalogue of planted faults (testdata/catalogue, a file for each room) and plants them, one at a time: the fast tests
// of the packages that a fault names must then fail. A test is worth the faults that it kills.
//
// A block of the catalogue:
//
//	== id
//	file: the file that is changed
//	pkg: the packages whose tests must notice, as go test takes them
//	test: optional, what go test -run gets
//	why: what the fault stands for, one line
//	old<<
//	the text, which stands once in the file
//	>>
//	new<<
//	what stands there instead
//	>>
//
// The catalogue is for what mutation operators cannot make: dropped waits, swapped steps, short ranges, missing flushes. The
// source tree is never changed: a fault is an overlay of the go command. `make mutants` plants all of them.
package mutants
