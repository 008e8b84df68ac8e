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
#include "kernels/gemm/dense_matrix.h"

namespace fathom::model {

// How a row's token is chosen from its logits: the largest, or drawn by Gumbel numbers (core/gumbel.h).
struct DrawRule {
  double temperature = 0;  // 0: the largest
  uint64_t seed      = 0;
  int64_t position   = 0;
};

class UnembeddingScreen {
 public:
  // Copies w [V, H] by all threads.
  UnembeddingScreen(View<const bf16, 2> w, ThreadPool& threads);

  kernels::Int8Weights copy() const;
  int64_t bytes() const;

  // Replaces `ids` by the tokens that may be chosen, in their order, from y = w~ x~ [V] as linear_int8
  // computes it. False where a number is not finite, or the temperature too small: then any may be.
  bool candidates(std::span<const float> x, std::span<const float> y, const DrawRule& rule,
                  std::vector<int64_t>& ids);

 private:
  int64_t rows_, depth_;
  Buffer<int8_t> values_;
  Buffer<bf16> scales_;
  Buffer<float> errors_, norms_;  // [V]: |w - w~| and |w~|
  Buffer<float> lower_, upper_;   // [V]: scratch
};

}  // namespace fathom::model
