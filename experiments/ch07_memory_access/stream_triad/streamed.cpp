// a = b + s c                                   n elements, fp64
//
// bytes   24 n     all that moves
// flops   2 n
// limit   memory bandwidth
// idea    the same loop, with stores past the caches: no line is fetched only to be overwritten
#include "triad.h"
#include "triad_piece.h"

namespace fathom::lab::stream_triad {

void streamed(const Triad& p, Context&) { streamed_piece(p.b.data(), p.c.data(), p.a.data(), p.a.size()); }

}  // namespace fathom::lab::stream_triad
