// Fine-tuning: steps of AdamW over batches of examples, of all parameters or of adapters.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/thread_pool.h"
#include "model/config.h"
#include "train/adamw.h"
#include "train/dataset.h"
#include "train/lora.h"
#include "train/parameters.h"
#include "train/precision.h"

namespace fathom::train {

struct FineTuneOptions {
  int64_t steps        = 100;
  int64_t batch_tokens = 2048;
  // The rate rises linearly over the warm-up, then falls to 0 by half a cosine.
  double learning_rate = 1e-4;
  int64_t warmup_steps = 10;
  double max_grad_norm = 1;  // gradients are scaled down to it; 0: they are not
  AdamWOptions optimizer;
  int64_t lora_rank = 0;  // 0: all parameters are trained
  double lora_alpha = 16;
  Recipe recipe;
  uint64_t seed = 1;
};

// Of step `step`, from 0.
double learning_rate_at(const FineTuneOptions& options, int64_t step);

struct TrainingStep {
  int64_t step = 0;  // from 1
  double loss = 0, grad_norm = 0, learning_rate = 0, epochs = 0;
  int64_t tokens = 0;
};

// Changes `parameters`; with adapters only by what merge() adds, and returns them. Stops early where
// `on_step` returns false, and throws std::runtime_error where the loss is not finite, which leaves the
// parameters of the step before.
std::optional<Lora> fine_tune(const model::Config& config, Parameters& parameters,
                              const std::vector<Example>& examples, const FineTuneOptions& options,
                              ThreadPool& threads, const std::function<bool(const TrainingStep&)>& on_step);

// The mean loss over all targets, in batches of `batch_tokens`, without rounding.
double mean_loss(const model::Config& config, const Parameters& parameters,
                 const std::vector<Example>& examples, int64_t batch_tokens, ThreadPool& threads);

}  // namespace fathom::train
