// Finds the tokens that may have the largest logit, or be drawn, without the bf16 unembedding: by an int8
// copy that bounds each logit. What is left is computed exactly, so that the token is the same
// (kernels/sampling/screened_argmax.h has the same on GPUs).
//
// With w a row, w~ its copy, x the input and x~ its int8 numbers (kernels/gemm/linear_int8.h),
//   |w x - w~ x~| <= |w - w~| |x| + |w~| |x - x~|,
// the norms Euclidean, and a little more for the rounding of sums.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/dtype.h"
#include "core/thread_pool.h"
#include "core/view.h"
#include "kernels/execution.h"
#include "kernels/gemm/dense_matrix.h"
#include "model/ops.h"

namespace fathom::model {

// How a row's token is chosen from its logits: the largest, or drawn by Gumbel numbers (core/gumbel.h).
struct DrawRule {
  double temperature = 0;  // 0: the largest
  uint64_t seed      = 0;
  int64_t position   = 0;
};

class UnembeddingScreen {
 public:
  // Below it sums lose what bounds need: such rows are not screened.
  static constexpr double kLeastTemperature = 1e-6;

  // Copies w [V, H] by all threads. w must outlive it.
  UnembeddingScreen(View<const bf16, 2> w, ThreadPool& threads);

  // Computes of the logits [R, V] of x [R, H] those that may be chosen by the rules, [R], each with the bits
  // of ops.linear; the others are -infinity. All of them where a number is not finite, or more than V / 64
  // are left of a row.
  void logits(const Ops& ops, View<const float, 2> x, std::span<const DrawRule> rules, View<float, 2> logits,
              const Execution& on);

  int64_t bytes() const;

 private:
  kernels::Int8Weights copy() const;
  // Replaces candidates_ by the tokens that may be chosen, in their order, from y = w~ x~ [V]. False where a
  // number is not finite.
  bool find_candidates(std::span<const float> x, std::span<const float> y, const DrawRule& rule,
                       ThreadPool& threads);

  View<const bf16, 2> w_;
  int64_t rows_, depth_, most_candidates_;
  Buffer<int8_t> values_;
  Buffer<bf16> scales_;
  Buffer<float> errors_, norms_;  // [V]: |w - w~| and |w~|
  // Scratch.
  Buffer<float> lower_, upper_;  // [V]
  Buffer<bf16> candidate_weights_;
  Buffer<float> candidate_logits_;
  std::vector<int64_t> candidates_;
  std::vector<std::vector<int64_t>> of_chunks_;
};

}  // namespace fathom::model
