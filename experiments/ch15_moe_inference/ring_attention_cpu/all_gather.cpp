// out(i) = attention of q(i) to keys 0 .. i         N tokens, one head of 64, fp32, halves on 2 ranks
//
// bytes   N/2 x 512 B of keys and values from each rank to each other
// flops   128 N^2 altogether; rank 1 has three quarters of them
// limit   FMA peak of rank 1's core
// idea    baseline: gather all keys and values, then attend as on one rank
#include "messages.h"

namespace fathom::lab::ring_attention_cpu {

Step all_gather(const RingAttention&, Context& context) {
  return [group = join(*context.rank)](const RingAttention& p, Context& step) {
    // All ranks' messages are as long as the longest.
    const int64_t piece = kHeader + 2 * most_rows(p.tokens) * kHeadDim;
    float* const all    = p.messages.data();
    float* const mine   = all + p.rank * piece;
    const int64_t used =
        write_message(mine, step.rank->nonce(), {{p.k.data(), p.half().rows}, {p.v.data(), p.half().rows}});
    std::fill(mine + used, mine + piece, 0.0f);
    group->all_gather(out_of(mine, piece), into(all, kRanks * piece));
    p.sent_bytes(0) = (kRanks - 1) * piece * int64_t{sizeof(float)};

    const Queries queries = own_queries(p);
    begin(queries);
    p.nonces(0) = 0;
    p.scores(0) = 0;
    for (int r = 0; r < kRanks; ++r) {
      const float* const message = all + r * piece;
      p.nonces(0) += nonce_of(message);
      const Chunk a = chunk(p.tokens, 2 * r), b = chunk(p.tokens, 2 * r + 1);
      const Chunk half        = {a.first, a.rows + b.rows};
      const float* const keys = rows_of_message(message);
      p.scores(0) += attend(queries, half, keys, keys + half.rows * kHeadDim, p.panels.data());
    }
    finish(queries);
  };
}

}  // namespace fathom::lab::ring_attention_cpu
