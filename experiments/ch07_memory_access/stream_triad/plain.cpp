// a = b + s c                                   n elements, fp64
//
// bytes   24 n     and 32 n move: a line of a is fetched before it is written (write-allocate)
// flops   2 n
// limit   memory bandwidth
// idea    baseline: the loop; g++ makes vectors of it
#include "triad.h"
#include "triad_piece.h"

namespace fathom::lab::stream_triad {

void plain(const Triad& p, Context&) { triad_piece(p.b.data(), p.c.data(), p.a.data(), p.a.size()); }

}  // namespace fathom::lab::stream_triad
