// a = b + s c                                   n elements, fp64
//
// bytes   24 n     all that moves
// flops   2 n
// limit   memory bandwidth of all cores
// idea    streamed on all threads, each on its own piece, cut at cache lines
#include "core/thread_pool.h"
#include "triad.h"
#include "triad_piece.h"

namespace fathom::lab::stream_triad {

void streamed_threads(const Triad& p, Context& context) {
  context.pool.parallel_for(p.a.size(), kLine, [&](int64_t begin, int64_t end) {
    streamed_piece(p.b.data() + begin, p.c.data() + begin, p.a.data() + begin, end - begin);
  });
}

}  // namespace fathom::lab::stream_triad
