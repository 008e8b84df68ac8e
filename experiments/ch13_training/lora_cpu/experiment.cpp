// Fine-tuning all parameters keeps 12 bytes for each beside the weights, and computes a gradient for each.
// Low-rank adapters keep that for a few per cent of them. What is left of the time?
#include "lab/experiment.h"

#include <cmath>
#include <vector>

#include "core/rng.h"
#include "core/thread_pool.h"
#include "experiments/engine_session.h"
#include "fine_tuning.h"
#include "lab/metric.h"
#include "model/config.h"
#include "train/gpt_oss_trainer.h"

namespace fathom::lab::lora_cpu {
namespace {

const model::Config& config() { return engine_session::bundled().checkpoint.config; }

int64_t parameters() {
  static const auto count = static_cast<int64_t>(train::Parameters(config()).all().size());
  return count;
}

}  // namespace

FineTuning::FineTuning(const Point& at, Arena& arena)
    : weights(arena.input<float>({parameters()}, generate<float>([](float* to, int64_t count, uint64_t seed) {
                                   train::Parameters random(config());
                                   train::initialize(random, seed);
                                   std::copy_n(random.all().data(), count, to);
                                 }))),
      text(arena.input<int32_t>({at["tokens"] + 1},
                                generate<int32_t>([](int32_t* to, int64_t count, uint64_t seed) {
                                  fill_integers(to, count, seed, 0, config().vocab_size);
                                }))),
      losses(arena.output<float>({2})),
      kept(arena.workspace<double>({2})) {}

Cost FineTuning::cost() const {
  // What no variant can do without: forward, and the gradients of activations, of two steps.
  const model::Footprint size = model::footprint(config());
  return {.read    = weights.bytes(),
          .written = losses.bytes(),
          .flops   = 2 * 4.0 * static_cast<double>(size.active_parameters * tokens())};
}

void FineTuning::check(Checker& checker) const {
  if (tokens() == 0) return checker.values("losses", losses, [](int64_t) { return Sum{}; });
  ThreadPool threads(1);
  train::Parameters exact(config());
  std::copy_n(weights.data(), weights.size(), exact.all().data());
  train::GptOssTrainer trainer(config(), {}, 1, threads);
  const std::vector<int64_t> first_row{0, tokens()};
  const auto T        = static_cast<size_t>(tokens());
  const double wanted = trainer.loss(
      exact, {.tokens = {text.data(), T}, .targets = {text.data() + 1, T}, .first_row = first_row});
  // The second loss is anything up to a tenth above the first: of random targets, a step of small adapters
  // takes off less than a hundredth, and now and then nothing.
  checker.values("losses", losses, [&](int64_t step) {
    return step == 0 ? Sum{.value = wanted, .magnitude = wanted, .length = 16}
                     : Sum{.value      = 0.55 * wanted,
                           .magnitude  = 0.55 * wanted,
                           .length     = 1,
                           .accumulate = DType::fp4_e2m1};
  });
}

void FineTuning::metrics(CallMetrics& metrics) const {
  metrics["state_bytes"]        = {kept(0), "lower"};
  metrics["trained_parameters"] = {kept(1), "lower"};
  metrics["loss_after_a_step"]  = {static_cast<double>(losses(1)), "lower"};
}

namespace {

const Experiment<FineTuning> experiment{
    .question = "How much memory and time of a fine-tuning step do low-rank adapters leave?",
    .axes     = {{"tokens", {512}}},
    .quick    = {{"tokens", {64}}},
    .check_at = {{"tokens", {0, 1, 63, 64, 65, 127}}},
    .variants =
        {
            {.id         = "full",
             .launch     = full,
             .techniques = {},
             .idea       = "all parameters",
             .threads    = kAllThreads},
            {.id         = "rank_8",
             .launch     = rank_8,
             .techniques = {"low_rank_factorization"},
             .idea       = "adapters of attention's four matrices, rank 8",
             .prediction = predict::ratio(1.4),
             .threads    = kAllThreads},
            {.id         = "rank_64",
             .launch     = rank_64,
             .techniques = {"low_rank_factorization"},
             .idea       = "the same of rank 64",
             .prediction = predict::ratio(1.3),
             .threads    = kAllThreads},
        },
    .catalog = {"book-026"},
};
FATHOM_REGISTER(experiment);

}  // namespace
}  // namespace fathom::lab::lora_cpu
