// Training in few bits, emulated: the operands of the linear layers are rounded to what a format holds, and
// multiplied in fp32. It shows what a recipe does to the loss, and nothing of its speed.
//
// A linear layer has three products: y = x W^T, dx = dy W and dW = dy^T x. Blocks of numbers that share a
// scale lie along the dimension that a product sums over, so an operand is rounded for each of its two
// products apart.
//
// fp32: nothing is rounded.
//
// bf16: each number.
//
// fp8: E4M3 for x and W, E5M2 for dy; a scale for each tensor, from its largest magnitude (current scaling).
//
// mxfp8: E4M3; an E8M0 scale for each 32 numbers.
//
// nvfp4: E2M1; an E4M3 scale for each 16 numbers and an fp32 scale for each tensor. After NVIDIA,
// "Pretraining Large Language Models with NVFP4", 2025: W in blocks of 16 x 16, the same for both of its
// products; dy with stochastic rounding; both operands of dW through a Hadamard transform of 16 with random
// signs, others in each step. The paper also keeps some linear layers in BF16; here all are rounded.
//
// Rounded are the linear layers of attention and of the experts. Norms, router, embedding and unembedding,
// softmax, adapters and the optimizer stay in fp32, as recipes keep them in 16 bits or more.
#pragma once

#include <cstdint>
#include <vector>

#include "core/thread_pool.h"
#include "core/view.h"

namespace fathom::train {

enum class Precision { fp32, bf16, fp8, mxfp8, nvfp4 };

struct Recipe {
  Precision precision = Precision::fp32;
  // Of nvfp4; each may be left out, to see what it is for.
  bool stochastic_rounding = true;
  bool hadamard            = true;
  bool square_blocks       = true;
};

enum class Operand { activation, weight, gradient };

// Rounds operands; keeps the copies until it is asked for the same place again.
class Rounder {
 public:
  Rounder(const Recipe& recipe, uint64_t seed, ThreadPool& threads)
      : recipe_(recipe), seed_(seed), threads_(threads) {}

  // x [R, C], for a product that sums over its columns, or over its rows. The view is of `copy`, or x itself
  // in fp32. `in_weight_gradient`: it is an operand of dW.
  View<const float, 2> over_columns(View<const float, 2> x, Operand operand, std::vector<float>& copy);
  View<const float, 2> over_rows(View<const float, 2> x, Operand operand, bool in_weight_gradient,
                                 std::vector<float>& copy);

  // Every number that is drawn from now on is another.
  void next_step() { draws_ = 0, ++step_; }
  void skip_steps(int64_t steps) { step_ += static_cast<uint64_t>(steps); }

 private:
  void round(View<float, 2> x, Operand operand, bool in_weight_gradient);

  const Recipe recipe_;
  const uint64_t seed_;
  ThreadPool& threads_;
  uint64_t step_ = 0, draws_ = 0;
};

}  // namespace fathom::train
