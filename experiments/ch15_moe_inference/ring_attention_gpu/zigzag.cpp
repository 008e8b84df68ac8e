// The ring over another order: a rank works on an early and a late chunk, 0 and 3 or 1 and 2, so both see as
// many keys (four of eight units, not six). A trainer would load tokens in this order; here the ranks
// exchange a chunk first and its outputs last, and that counts.
//
//            keeps   gets   attends to its own keys   then, of the others
//   rank 0   0       3      0 3, causal               row chunk 3 to keys 1 2
//   rank 1   2       1      1 2, causal               row chunks 1 2 to keys 0
#include <memory>

#include "turns.h"

namespace fathom::lab::ring_attention_gpu {

Call zigzag(const RingAttention& p, Context& context) {
  static_assert(kRanks == 2, "the exchange of chunks is written for two ranks");
  struct Kept {
    Exchange exchange;
    Turn own, others;
  };
  const bool first     = context.rank->rank() == 0;
  const int64_t c      = p.chunk();
  const int64_t behind = first ? c : 2 * c;  // rows that see keys of the others,
  const int64_t before = first ? 2 * c : c;  // and how many
  const auto kept =
      std::shared_ptr<Kept>(new Kept{.exchange = Exchange(p, *context.rank),
                                     .own      = Turn(2 * c, 2 * c, Turn::Keys::causal, context),
                                     .others   = Turn(behind, before, Turn::Keys::before, context)});
  return [=](const RingAttention& p, Context& context) {
    Exchange& x          = kept->exchange;
    const StreamRef side = x.stream(), main = context.stream;
    // Places of chunks in the order of positions: of the one kept and the one got here, and of what the other
    // rank gets.
    const int64_t at_kept = first ? 0 : c, at_got = c - at_kept, at_given = first ? 0 : c;
    const auto chunk   = [&](ConstRows of, int64_t at) { return rows_of(of, at, c); };  // of own inputs
    const int64_t keep = 0, give = c;                                                   // in them
    x.begin(main);
    x.push(chunk(p.q, give), p.queries, at_given, side);
    x.push(chunk(p.k, give), p.keys, at_given, side);
    x.push(chunk(p.v, give), p.values, at_given, side);
    x.signal(0, side);
    // Keys that are not among the first two chunks in order here: the other rank's kept one, then, on rank 0,
    // the one that was given away and is here still.
    x.push(chunk(p.k, keep), p.keys, 2 * c, side);
    x.push(chunk(p.v, keep), p.values, 2 * c, side);
    x.push_nonce(p, side);
    x.signal(1, side);

    copy(chunk(p.q, keep), rows_of(p.queries, at_kept, c), main);
    copy(chunk(p.k, keep), rows_of(p.keys, at_kept, c), main);
    copy(chunk(p.v, keep), rows_of(p.values, at_kept, c), main);
    if (first) {
      copy(chunk(p.k, give), rows_of(p.keys, 3 * c, c), main);
      copy(chunk(p.v, give), rows_of(p.values, 3 * c, c), main);
    }
    x.wait(0, main);
    kept->own.run(ConstRows(p.queries), ConstRows(rows_of(p.keys, 0, 2 * c)),
                  ConstRows(rows_of(p.values, 0, 2 * c)), p.part, p.lse, main);
    x.wait(1, main);
    const int64_t row = 2 * c - behind;
    const View<float, 2> more_lse(p.more_lse.data(), {kHeads, behind}, {2 * c, 1});
    kept->others.run(ConstRows(rows_of(p.queries, row, behind)), ConstRows(rows_of(p.keys, 2 * c, before)),
                     ConstRows(rows_of(p.values, 2 * c, before)), rows_of(p.more, 0, behind), more_lse, main);
    merge(rows_of(p.part, row, behind),
          View<const float, 2>(p.lse.data() + row, {kHeads, behind}, {2 * c, 1}),
          ConstRows(rows_of(p.more, 0, behind)), View<const float, 2>(more_lse), main);

    x.push(ConstRows(rows_of(p.part, at_got, c)), p.out, give, main);
    x.signal(2, main);
    copy(ConstRows(rows_of(p.part, at_kept, c)), rows_of(p.out, keep, c), main);
    x.wait(2, main);
    x.end(main);
  };
}

}  // namespace fathom::lab::ring_attention_gpu
