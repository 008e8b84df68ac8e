// out(i) = attention of q(i) to keys 0 .. i         N tokens, one head of 64, fp32, halves on 2 ranks
//
// bytes   N/2 x 512 B of keys and values from each rank to its neighbour, for each rank but one
// flops   128 N^2 altogether; rank 1 has three quarters of them
// limit   FMA peak of rank 1's core
// idea    ring attention (Liu et al., 2023): keys and values go round, and an online softmax takes them as
// they
//         come; a rank holds two blocks, however many ranks there are
#include <utility>

#include "messages.h"

namespace fathom::lab::ring_attention_cpu {

Step ring(const RingAttention&, Context& context) {
  return [group = join(*context.rank)](const RingAttention& p, Context& step) {
    const auto half_of = [&](int r) {
      const Chunk a = chunk(p.tokens, 2 * r), b = chunk(p.tokens, 2 * r + 1);
      return Chunk{a.first, a.rows + b.rows};
    };
    const Queries queries = own_queries(p);
    begin(queries);
    float *here = &p.messages(0, 0), *next = &p.messages(1, 0);
    int64_t length =
        write_message(here, step.rank->nonce(), {{p.k.data(), p.half().rows}, {p.v.data(), p.half().rows}});
    p.nonces(0) = p.sent_bytes(0) = p.scores(0) = 0;
    for (int turn = 0; turn < kRanks; ++turn) {
      const int from   = (p.rank - turn + kRanks) % kRanks;
      const Chunk half = half_of(from);
      p.nonces(0) += nonce_of(here);
      const float* const keys = rows_of_message(here);
      p.scores(0) += attend(queries, half, keys, keys + half.rows * kHeadDim, p.panels.data());
      if (turn + 1 == kRanks) break;
      const int64_t coming = kHeader + 2 * half_of((from - 1 + kRanks) % kRanks).rows * kHeadDim;
      group->send_receive(out_of(here, length), (p.rank + 1) % kRanks, into(next, coming),
                          (p.rank - 1 + kRanks) % kRanks);
      p.sent_bytes(0) += length * int64_t{sizeof(float)};
      std::swap(here, next);
      length = coming;
    }
    finish(queries);
  };
}

}  // namespace fathom::lab::ring_attention_cpu
