// Permutes the rows of an expert layer so that the rows of each expert are consecutive, and each expert's
// weights are read once for all of them (kernels/moe/experts_grouped_gemm.h).
//
// bytes   sort: 8 for each expert row; gather: 4 H for each expert row
// limit   sort: latency of one CTA; gather: memory bandwidth
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/cost.h"
#include "kernels/moe/expert_rows.h"

namespace fathom::kernels {

// experts [T, top_k], contiguous; -1: padding, which is left out. offsets [E + 1], E up to kMaxExperts;
// sorted_ids [T top_k]. By one CTA: some microseconds for up to a thousand expert rows.
void sort_by_expert(View<const int32_t, 2> experts, View<int32_t, 1> offsets, View<int32_t, 1> sorted_ids,
                    StreamRef stream);

// sorted(i) = x(sorted_ids(i) / top_k) for i < offsets(E). x [T, H], sorted [T top_k, H]; rows are multiples
// of 16 bytes and aligned to them.
void gather_rows(View<const bf16, 2> x, const ExpertRows& rows, int64_t top_k, View<bf16, 2> sorted,
                 StreamRef stream);

// For T top_k expert rows.
inline Cost sort_by_expert_cost(int64_t expert_rows, int64_t num_experts) {
  const auto R = static_cast<double>(expert_rows);
  return {.read = 4 * R, .written = 4 * R + 4 * static_cast<double>(num_experts + 1)};
}
inline Cost gather_rows_cost(int64_t expert_rows, int64_t hidden) {
  const auto R = static_cast<double>(expert_rows), H = static_cast<double>(hidden);
  return {.read = R * (2 * H + 4), .written = 2 * R * H};
}

}  // namespace fathom::kernels
