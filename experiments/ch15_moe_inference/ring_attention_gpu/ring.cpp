// Each rank attends to its own keys while the other's arrive, and then to those; the log-sum-exp of both
// results weighs them (Liu et al., Ring Attention, 2023). Own keys stay where they are.
#include <memory>
#include <optional>

#include "turns.h"

namespace fathom::lab::ring_attention_gpu {

Call ring(const RingAttention& p, Context& context) {
  struct Kept {
    Exchange exchange;
    Turn own;
    std::optional<Turn> others;  // rank 0 sees none of them
  };
  const auto kept =
      std::shared_ptr<Kept>(new Kept{.exchange = Exchange(p, *context.rank),
                                     .own      = Turn(p.half(), p.half(), Turn::Keys::causal, context),
                                     .others   = {}});
  if (context.rank->rank() > 0) kept->others.emplace(p.half(), p.half(), Turn::Keys::before, context);
  return [kept](const RingAttention& p, Context& c) {
    Exchange& x          = kept->exchange;
    const StreamRef side = x.stream();
    x.begin(c.stream);
    x.push(p.k, p.keys, 0, side);
    x.push(p.v, p.values, 0, side);
    x.push_nonce(p, side);
    x.signal(0, side);
    kept->own.run(p.q, p.k, p.v, p.out, p.lse, c.stream);
    x.wait(0, c.stream);
    if (kept->others) {
      kept->others->run(p.q, ConstRows(rows_of(p.keys, 0, p.half())),
                        ConstRows(rows_of(p.values, 0, p.half())), p.more, p.more_lse, c.stream);
      merge(p.out, View<const float, 2>(p.lse), ConstRows(p.more), View<const float, 2>(p.more_lse),
            c.stream);
    }
    x.end(c.stream);
  };
}

}  // namespace fathom::lab::ring_attention_gpu
