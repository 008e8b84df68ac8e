// The steps, once for all ranks.
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "core/thread_pool.h"
#include "experiments/engine_session.h"
#include "fine_tuning.h"
#include "train/adamw.h"
#include "train/gpt_oss_trainer.h"

namespace fathom::lab::lora_cpu {
namespace {

constexpr double kRate = 1e-3;

}  // namespace

void two_steps(const FineTuning& p, int64_t rank, Context& context) {
  using namespace train;
  const model::Config& config = engine_session::bundled().checkpoint.config;
  Parameters parameters(config);
  std::copy_n(p.weights.data(), p.weights.size(), parameters.all().data());
  std::optional<Parameters> gradients;
  std::optional<Lora> lora, lora_gradients;
  if (rank > 0) {
    lora.emplace(config, rank, 2.0 * static_cast<double>(rank)),
        lora_gradients.emplace(config, rank, 2.0 * static_cast<double>(rank));
    initialize(*lora, 1);
  } else {
    gradients.emplace(config);
  }
  const std::span<float> trained = lora ? lora->all() : parameters.all();
  const std::span<float> of_step = lora ? lora_gradients->all() : gradients->all();
  GptOssTrainer trainer(config, {}, 1, context.pool);
  AdamW optimizer(static_cast<int64_t>(trained.size()));
  const std::vector<int64_t> first_row{0, p.tokens()};
  const auto T = static_cast<size_t>(p.tokens());
  const TokenBatch batch{
      .tokens = {p.text.data(), T}, .targets = {p.text.data() + 1, T}, .first_row = first_row};
  p.losses(0) = p.losses(1) = 0;
  for (int64_t step = 0; step < 2 && p.tokens() > 0; ++step) {
    std::ranges::fill(of_step, 0.0f);
    p.losses(step) = static_cast<float>(
        trainer.loss_and_gradients(parameters, batch, gradients ? &*gradients : nullptr,
                                   lora ? &*lora : nullptr, lora_gradients ? &*lora_gradients : nullptr));
    optimizer.step(trained, of_step, lora ? lora->places() : parameters.places(), kRate, 1, context.pool);
  }
  p.kept(0) = 3.0 * sizeof(float) * static_cast<double>(trained.size());
  p.kept(1) = static_cast<double>(trained.size());
}

}  // namespace fathom::lab::lora_cpu
