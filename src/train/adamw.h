// AdamW (Loshchilov, Hutter, "Decoupled Weight Decay Regularization", 2019), in one pass over memory:
//
//   m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//   w = w - rate (m' / (sqrt(v') + epsilon) + decay w)
//
// with m' = m / (1 - beta1^t), v' = v / (1 - beta2^t) at step t. Decay applies to matrices alone.
//
// bytes   28 a parameter: w, m, v read and written, g read
// limit   memory bandwidth
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/thread_pool.h"
#include "train/parameters.h"

namespace fathom::train {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
};

class AdamW {
 public:
  explicit AdamW(int64_t parameters, const AdamWOptions& options = {});

  // One step by gradients times `factor` (for clipping). `places` cover `weights`.
  void step(std::span<float> weights, std::span<const float> gradients,
            const std::vector<TensorPlace>& places, double learning_rate, double factor, ThreadPool& threads);

  // What it keeps from step to step, by parameter, and how many steps it has made: to save and to restore.
  std::span<float> first_moments() { return m_; }
  std::span<float> second_moments() { return v_; }
  void set_steps(int64_t steps) { steps_ = steps; }

 private:
  AdamWOptions options_;
  std::vector<float> m_, v_;
  int64_t steps_ = 0;
};

// The root of the sum of squares.
double global_norm(std::span<const float> gradients);

}  // namespace fathom::train
