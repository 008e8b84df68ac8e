#include "train/fine_tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "train/gpt_oss_trainer.h"

namespace fathom::train {

double learning_rate_at(const FineTuneOptions& options, int64_t step) {
  const auto at = static_cast<double>(step), warmup = static_cast<double>(options.warmup_steps);
  if (step < options.warmup_steps) return options.learning_rate * (at + 1) / warmup;
  const double left = static_cast<double>(options.steps) - warmup;
  return options.learning_rate * 0.5 * (1 + std::cos(M_PI * (at - warmup) / std::max(left, 1.0)));
}

std::optional<Lora> fine_tune(const model::Config& config, Parameters& parameters,
                              const std::vector<Example>& examples, const FineTuneOptions& options,
                              ThreadPool& threads, const TrainingHooks& hooks) {
  std::optional<Lora> lora, lora_gradients;
  std::optional<Parameters> gradients;
  if (options.lora_rank > 0) {
    lora.emplace(config, options.lora_rank, options.lora_alpha);
    lora_gradients.emplace(config, options.lora_rank, options.lora_alpha);
    initialize(*lora, options.seed);
  } else {
    gradients.emplace(config);
  }
  const std::span<float> weights = lora ? lora->all() : parameters.all();
  const std::span<float> of_step = lora ? lora_gradients->all() : gradients->all();
  const auto& places             = lora ? lora->places() : parameters.places();
  AdamW optimizer(static_cast<int64_t>(weights.size()), options.optimizer);
  GptOssTrainer trainer(config, options.recipe, options.seed, threads);
  Batches batches(examples, options.batch_tokens, options.seed);
  TrainingState state{.steps          = 0,
                      .weights        = weights,
                      .first_moments  = optimizer.first_moments(),
                      .second_moments = optimizer.second_moments()};
  if (hooks.restore) {
    hooks.restore(state);
    optimizer.set_steps(state.steps);
    trainer.skip_steps(state.steps);
    for (int64_t step = 0; step < state.steps; ++step) (void)batches.next();
  }
  for (int64_t step = state.steps; step < options.steps; ++step) {
    const TokenBatch batch = batches.next();
    std::ranges::fill(of_step, 0.0f);
    TrainingStep done{.step = step + 1, .learning_rate = learning_rate_at(options, step)};
    done.loss =
        trainer.loss_and_gradients(parameters, batch, gradients ? &*gradients : nullptr,
                                   lora ? &*lora : nullptr, lora_gradients ? &*lora_gradients : nullptr);
    done.grad_norm = global_norm(of_step);
    done.tokens    = static_cast<int64_t>(batch.tokens.size());
    done.epochs    = batches.epochs();
    if (!std::isfinite(done.loss) || !std::isfinite(done.grad_norm))
      throw std::runtime_error(
          fmt::format("the loss or a gradient of step {} is not finite: lower the learning rate, or the "
                      "warm-up is too short",
                      done.step));
    const double clip =
        options.max_grad_norm > 0 ? std::min(1.0, options.max_grad_norm / (done.grad_norm + 1e-6)) : 1;
    optimizer.step(weights, of_step, places, done.learning_rate, clip, threads);
    state.steps = done.step;
    if (!hooks.on_step(done, state)) break;
  }
  if (!std::ranges::all_of(weights, [](float w) { return std::isfinite(w); }))
    throw std::runtime_error("a weight is not finite after the last step: lower the learning rate");
  if (lora) merge(*lora, parameters);
  return lora;
}

double mean_loss(const model::Config& config, const Parameters& parameters,
                 const std::vector<Example>& examples, int64_t batch_tokens, ThreadPool& threads) {
  GptOssTrainer trainer(config, {}, 0, threads);
  double sum      = 0;
  int64_t counted = 0;
  std::vector<int32_t> tokens, targets;
  std::vector<int64_t> first_row{0};
  const auto take = [&] {
    if (tokens.empty()) return;
    const TokenBatch batch{.tokens = tokens, .targets = targets, .first_row = first_row};
    sum += trainer.loss(parameters, batch) * static_cast<double>(batch.counted());
    counted += batch.counted();
    tokens.clear(), targets.clear(), first_row.assign(1, 0);
  };
  for (const Example& example : examples) {
    if (static_cast<int64_t>(tokens.size() + example.tokens.size()) > batch_tokens) take();
    tokens.insert(tokens.end(), example.tokens.begin(), example.tokens.end());
    targets.insert(targets.end(), example.targets.begin(), example.targets.end());
    first_row.push_back(static_cast<int64_t>(tokens.size()));
  }
  take();
  return sum / static_cast<double>(counted);
}

}  // namespace fathom::train
