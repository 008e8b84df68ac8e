// out(i) = attention of q(i) to keys 0 .. i         N tokens, one head of 64, fp32, halves on 2 ranks
//
// bytes   ring, and N/4 x 1 KB for the way to the other order of chunks and back
// flops   128 N^2 altogether, half of them on each rank
// limit   FMA peak of a core
// idea    a ring over another order: of four chunks a rank works on an early and a late one, 0 and 3 or 1 and
//         2, so both see as many keys. A trainer would load tokens in this order; here ranks exchange a chunk
//         first and its outputs last, and that counts
#include "messages.h"

namespace fathom::lab::ring_attention_cpu {

Step zigzag(const RingAttention&, Context& context) {
  static_assert(kRanks == 2, "the exchange of chunks is written for two ranks");
  return [group = join(*context.rank)](const RingAttention& p, Context& step) {
    const int other      = 1 - p.rank;
    const Chunk kept     = chunk(p.tokens, 2 * p.rank);      // stays
    const Chunk given    = chunk(p.tokens, 2 * p.rank + 1);  // goes to the other rank
    const Chunk got      = chunk(p.tokens, 2 * other + 1);   // comes from there
    const Chunk others   = chunk(p.tokens, 2 * other);       // stays there
    const auto given_row = [&](View<const float, 2> of) { return of.data() + kept.rows * kHeadDim; };
    const auto exchange  = [&](float* out, int64_t floats, float* in, int64_t coming) {
      group->send_receive(out_of(out, floats), other, into(in, coming), other);
      p.sent_bytes(0) += floats * int64_t{sizeof(float)};
    };
    p.sent_bytes(0) = p.scores(0) = 0;

    float *const out = &p.messages(0, 0), *const in = &p.messages(1, 0);
    int64_t floats = write_message(
        out, step.rank->nonce(),
        {{given_row(p.q), given.rows}, {given_row(p.k), given.rows}, {given_row(p.v), given.rows}});
    exchange(out, floats, in, kHeader + 3 * got.rows * kHeadDim);
    p.nonces(0)           = step.rank->nonce() + nonce_of(in);
    const float* const q  = rows_of_message(in);
    const float* const k  = q + got.rows * kHeadDim;
    const float* const v  = k + got.rows * kHeadDim;
    const Queries early   = {kept, p.q.data(), p.out.data(), p.max.data(), p.sum.data()};
    const Queries late    = {got, q, p.rows.data(), p.max.data() + most_rows(p.tokens),
                             p.sum.data() + most_rows(p.tokens)};
    const auto attend_all = [&](Chunk at, const float* keys, const float* values) {
      for (const Queries& queries : {early, late})
        p.scores(0) += attend(queries, at, keys, values, p.panels.data());
    };
    begin(early);
    begin(late);
    attend_all(kept, p.k.data(), p.v.data());
    attend_all(got, k, v);

    // The ring's only turn. What it brings is what this rank does not have: the other's chunk that stayed,
    // and the chunk that was given away, which is here still.
    floats = write_message(out, step.rank->nonce(), {{p.k.data(), kept.rows}, {p.v.data(), kept.rows}});
    // `in` still has the queries of `late`: the other rank's keys lie behind them.
    float* const more = in + kHeader + 3 * got.rows * kHeadDim;
    exchange(out, floats, more, kHeader + 2 * others.rows * kHeadDim);
    const float* const keys = rows_of_message(more);
    attend_all(others, keys, keys + others.rows * kHeadDim);
    attend_all(given, given_row(p.k), given_row(p.v));
    finish(early);
    finish(late);

    floats = write_message(out, step.rank->nonce(), {{p.rows.data(), got.rows}});
    exchange(out, floats, in, kHeader + given.rows * kHeadDim);
    std::copy_n(rows_of_message(in), given.rows * kHeadDim, p.out.data() + kept.rows * kHeadDim);
  };
}

}  // namespace fathom::lab::ring_attention_cpu
