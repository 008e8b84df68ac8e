// One loop for all recipes.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/thread_pool.h"
#include "experiments/engine_session.h"
#include "train/adamw.h"
#include "train/gpt_oss_trainer.h"
#include "train/parameters.h"
#include "training.h"

namespace fathom::lab::nvfp4_training {
namespace {

constexpr double kRate    = 3e-3;
constexpr int64_t kWarmup = 10;  // steps in which the rate rises

}  // namespace

model::Config small_config(int64_t experts) {
  model::Config config       = engine_session::bundled().checkpoint.config;
  config.num_hidden_layers   = 2;
  config.layers              = {model::Attention::sliding, model::Attention::full};
  config.hidden_size         = 128;
  config.intermediate_size   = 64;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.num_local_experts   = experts;
  config.num_experts_per_tok = 2;
  return config;
}

Losses train(const Training& p, const fathom::train::Recipe& recipe, ThreadPool& threads) {
  using namespace fathom::train;
  const model::Config config = small_config(p.experts);
  Parameters parameters(config), gradients(config);
  initialize(parameters, 1);
  GptOssTrainer trainer(config, recipe, 1, threads), exact(config, {}, 1, threads);
  AdamW optimizer(static_cast<int64_t>(parameters.all().size()));
  std::vector<int32_t> tokens(kBatchTokens), targets(kBatchTokens);
  std::vector<int64_t> first_row;
  for (int64_t t = 0; t <= kBatchTokens; t += p.length) first_row.push_back(t);
  const auto batch = [&](int64_t step) {
    for (int64_t t = 0; t < kBatchTokens; ++t) {
      tokens[static_cast<size_t>(t)]  = p.text(step * kBatchTokens + t, 0);
      targets[static_cast<size_t>(t)] = p.text(step * kBatchTokens + t, 1);
    }
    return TokenBatch{.tokens = tokens, .targets = targets, .first_row = first_row};
  };
  Losses losses;
  for (int64_t step = 0; step < p.steps(); ++step) {
    std::ranges::fill(gradients.all(), 0.0f);
    losses.of_steps.push_back(
        static_cast<float>(trainer.loss_and_gradients(parameters, batch(step), &gradients)));
    const double clip = std::min(1.0, 1 / (global_norm(gradients.all()) + 1e-6));
    const double rate = kRate * static_cast<double>(std::min(step + 1, kWarmup)) / kWarmup;
    optimizer.step(parameters.all(), gradients.all(), parameters.places(), rate, clip, threads);
  }
  const size_t quarter = (losses.of_steps.size() + 3) / 4;
  if (quarter > 0)
    losses.last = static_cast<float>(
        std::accumulate(losses.of_steps.end() - static_cast<int64_t>(quarter), losses.of_steps.end(), 0.0) /
        static_cast<double>(quarter));
  losses.held_out = static_cast<float>(exact.loss(parameters, batch(p.steps())));
  return losses;
}

void train_into(const Training& p, const fathom::train::Recipe& recipe, Context& context) {
  const Losses losses = train(p, recipe, context.pool);
  std::copy(losses.of_steps.begin(), losses.of_steps.end(), p.losses.data());
  p.last_loss(0) = losses.last;
  p.held_out(0)  = losses.held_out;
}

}  // namespace fathom::lab::nvfp4_training
