// All keys and values on both GPUs, then attention as one GPU has it: one launch, and no merge. Rank 1, whose
// rows are late, sees three quarters of all pairs, and begins when the last key is there.
#include <memory>

#include "turns.h"

namespace fathom::lab::ring_attention_gpu {

Call all_gather(const RingAttention& p, Context& context) {
  struct Kept {
    Exchange exchange;
    Turn turn;
  };
  const int64_t seen = context.rank->rank() == 0 ? p.half() : p.tokens;
  const auto kept    = std::shared_ptr<Kept>(new Kept{
         .exchange = Exchange(p, *context.rank), .turn = Turn(p.half(), seen, Turn::Keys::causal, context)});
  return [kept, seen](const RingAttention& p, Context& c) {
    Exchange& x          = kept->exchange;
    const int64_t mine   = x.own() * p.half();
    const StreamRef side = x.stream();
    x.begin(c.stream);
    x.push(p.k, p.keys, mine, side);
    x.push(p.v, p.values, mine, side);
    x.push_nonce(p, side);
    x.signal(0, side);
    copy(p.k, rows_of(p.keys, mine, p.half()), c.stream);
    copy(p.v, rows_of(p.values, mine, p.half()), c.stream);
    x.wait(0, c.stream);
    kept->turn.run(p.q, ConstRows(rows_of(p.keys, 0, seen)), ConstRows(rows_of(p.values, 0, seen)), p.out,
                   p.lse, c.stream);
    x.end(c.stream);
  };
}

}  // namespace fathom::lab::ring_attention_gpu
