// Package mutants holds the catalogue of planted faults (testdata/catalogue, a file for each room)
// and plants them, one at a time: the fast tests of the packages that a fault names must then fail.
// A test is worth the faults that it kills.
//
// A block of the catalogue; lines that begin with # between blocks are comments:
//
//	== id
//	file: the file that is changed
//	pkg: the packages whose tests must notice, as go test takes them
//	test: optional, what go test -run gets
//	why: what the fault stands for, one line
//	equivalent: optional, why no test can notice this fault
//	old<<
//	the text, which stands once in the file
//	>>
//	new<<
//	what stands there instead
//	>>
//
// The catalogue is for what mutation operators cannot make: dropped waits, swapped steps, short
// ranges, missing flushes. The source tree is never changed: a fault is an overlay of the go
// command.
//
// `make mutants` plants all faults, `make mutants SAMPLE=20` the twenty that the commit draws,
// `make mutants ID=regexp` those with such an id. A fault is killed when the tests fail; it
// survives when they pass. An equivalent fault must survive. A test that hangs until go test's
// timeout has not noticed anything: a stuck test ends by itself and says which task waits for
// which.
package mutants
