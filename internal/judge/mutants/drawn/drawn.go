// Package drawn plants faults that nobody chose. Operators over the syntax tree say where the code
// could be wrong by one small change; a seed draws some of these sites; the tests run with one
// fault on at a time. The catalogue of package mutants is as blind as its authors, and this is not.
//
//	Find       all sites of the given packages            sites.go, typed.go
//	Draw       as many as wanted, by a seed               sites.go
//	Build      one build that has all of them, each       build.go
//	           after a switch
//	Link       the test binaries of that build            build.go
//	Reach      which test comes to which site             run.go
//	Try        the tests that come to a site, with its    run.go
//	           fault on, until one fails
//
// One build for all is what makes it fast: a fault costs the tests that reach it and no compiler.
// A site that no test reaches costs nothing; it survives.
//
// The operators that put something else in the place of an expression ask for its type (types.go):
// two arguments of one type are swapped, a number has another value or unit, a variable of the same
// type is taken, an error is ignored, what may fail is not done (a flush among it), a lock and its
// unlock go together, and a message has two of its values swapped.
//
// Left out are other texts (what is inside fmt, errors and panic, and functions that only
// describe), assertions, and tests. A fault that changes nothing anybody can see is equivalent; it
// is argued in testdata/argued.txt, by its identity.
package drawn
