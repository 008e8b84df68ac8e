// out(i) = sum over ranks of in(i)                          n fp32 on each of R ranks
//
// bytes   every rank writes and reads 4 n / R for each other rank, twice, and its own 4 n in and out
// flops   (R - 1) n / R, on every rank
// limit   memory bandwidth; below some 10,000 numbers two waits
// idea    reduce-scatter, then all-gather: a rank adds up only its segment, and publishes only what others
// add
#include "all_reduce.h"

namespace fathom::lab::all_reduce {

void two_shot(const AllReduce& p, Context& context) {
  const Rank& me     = *context.rank;
  const auto segment = [&](int rank) { return segment_begin(me, p.in.size(), rank); };
  const auto length  = [&](int rank) { return segment(rank + 1) - segment(rank); };
  const Outbox mine  = outbox(me, me.rank());
  *mine.nonce        = me.nonce();
  for (int rank = 0; rank < me.size(); ++rank)
    if (rank != me.rank()) copy(p.in.data() + segment(rank), mine.values + segment(rank), length(rank));
  me.barrier();  // every rank finds its segment of all others
  uint64_t nonces = 0;
  const int64_t b = segment(me.rank()), n = length(me.rank());
  float* const out = p.out.data();
  for (int rank = 0; rank < me.size(); ++rank) {
    nonces += *outbox(me, rank).nonce;
    const float* values = rank == me.rank() ? p.in.data() : outbox(me, rank).values;
    rank == 0 ? copy(values + b, out + b, n) : add(values + b, out + b, n);
  }
  p.nonces(0) = nonces;
  copy(out + b, mine.values + b, n);
  me.barrier();  // every segment lies, summed, in its rank's outbox
  for (int rank = 0; rank < me.size(); ++rank)
    if (rank != me.rank()) copy(outbox(me, rank).values + segment(rank), out + segment(rank), length(rank));
}

}  // namespace fathom::lab::all_reduce
