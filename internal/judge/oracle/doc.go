// Package oracle judges what was seen. Given a history of file operations, with when each began and
// returned and which bytes every read and the final file show, it says whether the file system kept
// a named contract, and when it did not, which facts cannot be true together. It is pure: it reads
// values, never the file system, and it shares no code with what it judges.
//
// Four questions: [Checker.Check] (is there an order of the operations that explains everything
// seen?), [CheckEOF] (does something exist beyond a truncate that returned, or nothing where a
// write returned?), [CheckStale] (a byte that no operation wrote), [Checker.CheckFsync] (does a
// recovered image hold what fsync promised?).
//
// # Model
//
// A file is an array of bytes and a size. A write puts its name on the bytes [Lo, Hi) and makes the
// size max(size, Hi); truncate(N) zeroes [N, end of the world) and makes the size N; a punch
// zeroes; an append is a write that found size == Lo; a read sees bytes, and the size as far as its
// length tells. A byte beyond the size is zero. A [Contract] cuts every operation into the pieces
// that must take effect at one instant (a byte, a page, the batch of pages one buffered write
// copies at a time, an extent, the whole request); each piece takes effect somewhere between the
// start and the return of its operation, pieces of one operation in any order. One operation comes
// before another when it returned before the other started; equal times count as overlapping. The
// contract is kept when one total order of the pieces respects this and explains every byte and
// every size seen.
//
// How it is decided. Offsets are compressed to the segments between the boundaries that occur, so a
// range costs the same whether it is 3 bytes or 16 GiB. Segments that no piece joins are judged
// apart: linearizability is local (Herlihy and Wing 1990), so by bytes or pages the question falls
// into many small ones. With n pieces, K pieces times segments, in words of 64 pieces:
//
//   - Tier 0, witness: replay the operations in the order of their commit hints, or of their
//     returns. O(K). An order that explains the history whole also explains it cut in pieces.
//   - Tier 1, peel, for a history without reads and sizes: take away an operation that can be the
//     last, that is, one that owns every byte of its own still asked for, and after which none of
//     the others starts; what it covered is no longer asked for. Exact: in any order that works,
//     that operation can be moved to the end. O(n² + K·n/64).
//   - Tier 2, with reads and sizes: the relation "must precede", transitively closed, in bit rows.
//     Writer before reader; and for a reader r of s, any other writer w of the same bytes is before
//     s or after r: as soon as one side is excluded the other is forced. A cycle means broken;
//     nothing open means kept; otherwise try one side of an open pair, then the other. Zero bytes
//     have several possible writers, and a size seen in [a, b] has a last truncate T and perhaps an
//     extending write between T and the reader: those are choices, decided in the same way. A
//     fixpoint costs O(n³/64). The guesses are nearly always a handful, and exponential in the
//     worst case: deciding such histories is NP-hard in general (view serializability,
//     Papadimitriou 1979). A search that takes long starts again with the readers that
//     contradictions came from, as constraint solvers do (weighted degree, Boussemart et al. 2004).
//     [Checker.Budget] bounds the guesses; beyond it the verdict is Undecided, never wrong.
//
// Long runs are cut by the caller at moments when nothing is in flight and judged window by window:
// what is in the file at a cut is the last Final and the next initial content.
//
// Nothing is allocated for a kept history once a Checker has seen one as big.
package oracle
