// The cost of the experts' layers on a GPU, for experts_gemv.h and experts_grouped_gemm.h. It depends on how
// many distinct experts have a row, which only the device knows.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cost.h"
#include "kernels/gemm/packed_weights.h"

namespace fathom::kernels {

// How many of E experts T tokens are expected to hit, if each token picks top_k different ones at random, all
// as likely. Exact for one token.
inline double expected_experts_hit(int64_t num_experts, int64_t top_k, int64_t tokens) {
  const auto E = static_cast<double>(num_experts), K = static_cast<double>(top_k);
  return E * (1 - std::pow(1 - K / E, static_cast<double>(tokens)));
}

// One expert's packed weights of rows x depth, with padding: codes, scales and bias.
inline double packed_expert_bytes(int64_t rows, int64_t depth) {
  const PackedExperts w{.rows = rows, .depth = depth};
  return static_cast<double>(w.tiles_of_one() * (PackedExperts::kTileBytes + PackedExperts::kScaleBytes) +
                             rows * 4);
}

// The first layer, w1 of rows x depth: reads `input_rows` rows of x [., hidden] (the tokens, or the sorted
// expert rows) and writes `expert_rows` rows of rows / 2 units.
inline Cost experts_up_cost(double experts_hit, int64_t expert_rows, int64_t input_rows, int64_t hidden,
                            int64_t rows, int64_t depth) {
  const auto R = static_cast<double>(expert_rows), N = static_cast<double>(rows),
             K = static_cast<double>(depth);
  return {.read = experts_hit * packed_expert_bytes(rows, depth) +
                  2.0 * static_cast<double>(input_rows) * static_cast<double>(hidden),
          .written = R * N,  // N / 2 units of 2 bytes
          .flops   = 2 * R * N * K};
}

// The second layer, w2 of rows x depth, to expert_outputs [expert_rows, hidden].
inline Cost experts_down_cost(double experts_hit, int64_t expert_rows, int64_t hidden, int64_t rows,
                              int64_t depth) {
  const auto R = static_cast<double>(expert_rows), N = static_cast<double>(rows),
             K = static_cast<double>(depth);
  return {.read    = experts_hit * packed_expert_bytes(rows, depth) + R * (2 * K + 4),
          .written = 4 * R * static_cast<double>(hidden),
          .flops   = 2 * R * N * K};
}

}  // namespace fathom::kernels
