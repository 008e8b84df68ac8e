// Steps that this chapter's variants share: one expert on some rows, and tokens grouped by expert.
#pragma once

#include <algorithm>
#include <cstdint>

#include "experiments/ch15_moe_inference/expert_layer.h"

namespace fathom::lab::moe {

// result = relu(x W1[e]) W2[e] for `rows` rows; hidden is scratch for as many rows.
inline void run_expert(const ExpertLayer& p, int64_t e, int64_t rows, const float* x, float* hidden,
                       float* result) {
  product(rows, kHidden, kModel, x, kModel, packed_panels(&p.w1(e, 0), kModel), hidden, kHidden, false);
  for (int64_t i = 0; i < rows * kHidden; ++i) hidden[i] = std::max(hidden[i], 0.0f);
  product(rows, kModel, kHidden, hidden, kHidden, packed_panels(&p.w2(e, 0), kHidden), result, kModel, false);
}

// out += weight * result, one row.
inline void accumulate(float* __restrict__ out, float weight, const float* __restrict__ result) {
  for (int64_t m = 0; m < kModel; ++m) out[m] += weight * result[m];
}

// A token's experts one after the other, one row each.
inline void run_token(const ExpertLayer& p, int64_t t) {
  float* out = &p.out(t, 0);
  std::fill_n(out, kModel, 0.0f);
  for (int64_t k = 0; k < kTopK; ++k) {
    run_expert(p, p.expert(t, k), 1, &p.x(t, 0), p.hidden.data(), p.result.data());
    accumulate(out, p.gate(t, k), p.result.data());
  }
}

// Orders the slots by expert (counting sort): fills slot_of_row, row_of_slot and first_row.
inline void group_by_expert(const ExpertLayer& p) {
  const int64_t slots   = p.expert.size();
  const int32_t* expert = p.expert.data();
  int32_t* first        = p.first_row.data();
  std::fill_n(first, kExperts + 1, 0);
  for (int64_t s = 0; s < slots; ++s) ++first[expert[s] + 1];
  for (int64_t e = 0; e < kExperts; ++e) first[e + 1] += first[e];
  int32_t next[kExperts];
  std::copy_n(first, kExperts, next);
  for (int64_t s = 0; s < slots; ++s) {
    const int32_t row  = next[expert[s]]++;
    p.slot_of_row(row) = static_cast<int32_t>(s);
    p.row_of_slot(s)   = row;
  }
}

// Gathers rows [begin, end) of expert e and runs it on them; results stay in place.
inline void run_group(const ExpertLayer& p, int64_t e, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    std::copy_n(&p.x(p.slot_of_row(row) / kTopK, 0), kModel, &p.gathered(row, 0));
  if (begin < end)
    run_expert(p, e, end - begin, &p.gathered(begin, 0), &p.hidden(begin, 0), &p.result(begin, 0));
}

// out = the weighted results of a token's experts, for tokens [begin, end).
inline void combine(const ExpertLayer& p, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    float* out = &p.out(t, 0);
    std::fill_n(out, kModel, 0.0f);
    for (int64_t k = 0; k < kTopK; ++k)
      accumulate(out, p.gate(t, k), &p.result(p.row_of_slot(t * kTopK + k), 0));
  }
}

inline void run_grouped(const ExpertLayer& p) {
  group_by_expert(p);
  for (int64_t e = 0; e < kExperts; ++e) run_group(p, e, p.first_row(e), p.first_row(e + 1));
  combine(p, 0, p.x.extent(0));
}

}  // namespace fathom::lab::moe
