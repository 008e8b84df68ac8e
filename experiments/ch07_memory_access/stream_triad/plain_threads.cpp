// a = b + s c                                   n elements, fp64
//
// bytes   24 n     and 32 n move, as in plain
// flops   2 n
// limit   memory bandwidth of all cores
// idea    plain on all threads, each on its own piece, cut at cache lines
#include "core/thread_pool.h"
#include "triad.h"
#include "triad_piece.h"

namespace fathom::lab::stream_triad {

void plain_threads(const Triad& p, Context& context) {
  context.pool.parallel_for(p.a.size(), kLine, [&](int64_t begin, int64_t end) {
    triad_piece(p.b.data() + begin, p.c.data() + begin, p.a.data() + begin, end - begin);
  });
}

}  // namespace fathom::lab::stream_triad
