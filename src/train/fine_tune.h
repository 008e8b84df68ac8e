// Fine-tuning: steps of AdamW over batches of examples, of all parameters or of adapters.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
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

// All that a step leaves to the next one, beside what follows from the options and the examples. Numbers are
// of what is trained: of all parameters, or of the adapters.
struct TrainingState {
  int64_t steps = 0;  // that were made
  std::span<float> weights, first_moments, second_moments;
};

struct TrainingHooks {
  // After each step; false ends the training.
  std::function<bool(const TrainingStep&, const TrainingState&)> on_step;
  // Before the first step: may fill the state with that of another training with the same options and
  // examples, which goes on then as if it had never ended, to the bit. Null: it begins.
  std::function<void(TrainingState&)> restore = {};
};

// Changes `parameters`; with adapters only by what merge() adds, and returns them. Throws std::runtime_error
// where the loss is not finite, which leaves the parameters of the step before.
std::optional<Lora> fine_tune(const model::Config& config, Parameters& parameters,
                              const std::vector<Example>& examples, const FineTuneOptions& options,
                              ThreadPool& threads, const TrainingHooks& hooks);

// The mean loss over all targets, in batches of `batch_tokens`, without rounding.
double mean_loss(const model::Config& config, const Parameters& parameters,
                 const std::vector<Example>& examples, int64_t batch_tokens, ThreadPool& threads);

}  // namespace fathom::train
