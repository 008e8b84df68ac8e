// Training in 4 bits holds only with cures for what rounding does to gradients. Which of them does a small
// model need, and what does each recipe cost in loss?
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>

#include <stdexcept>

#include "core/buffer.h"
#include "core/thread_pool.h"
#include "engine/likelihood_eval.h"
#include "experiments/engine_session.h"
#include "lab/metric.h"
#include "training.h"

namespace fathom::lab::nvfp4_training {
namespace {

using engine_session::bundled;

// Right answers of held-out cases, one text after another.
void make_text(int32_t* to, int64_t count, uint64_t seed) {
  const int64_t T = count / 2;
  std::vector<int32_t> tokens;
  for (; static_cast<int64_t>(tokens.size()) <= T; ++seed) {
    const auto texts = engine::held_out_answers(bundled().checkpoint, bundled().grammar, 4, seed);
    if (!texts) throw std::runtime_error(texts.error().message);
    for (const engine::ForcedAnswer& text : *texts) {
      tokens.insert(tokens.end(), text.prompt.begin(), text.prompt.end());
      tokens.insert(tokens.end(), text.answer.begin(), text.answer.end());
    }
  }
  for (int64_t t = 0; t < T; ++t)
    to[2 * t] = tokens[static_cast<size_t>(t)], to[2 * t + 1] = tokens[static_cast<size_t>(t + 1)];
}

Losses exact(const Training& p) {
  ThreadPool threads(1);
  return train(p, {}, threads);
}

}  // namespace

Training::Training(const Point& at, Arena& arena)
    : text(arena.input<int32_t>({(at["steps"] + 1) * kBatchTokens, 2}, generate<int32_t>(make_text))),
      losses(arena.output<float>({at["steps"]})),
      last_loss(arena.output<float>({1})),
      held_out(arena.output<float>({1})),
      length(at["length"]),
      experts(at["experts"]) {}

Cost Training::cost() const {
  const model::Footprint size = model::footprint(small_config(experts));
  return {.read    = text.bytes(),
          .written = losses.bytes(),
          .flops   = 6.0 * static_cast<double>(steps() * kBatchTokens * size.active_parameters)};
}

// Two runs of training part from each other after some ten steps, whatever small rounding made them differ: a
// single loss is then up to half a nat off, and means over many steps agree. Of a Sum of length 1 in FP4,
// whose u is 1/4, the tolerance is the magnitude.
void Training::check(Checker& checker) const {
  const Losses wanted = exact(*this);
  const auto near     = [](float loss, double nats) {
    return Sum{
            .value = static_cast<double>(loss), .magnitude = nats, .length = 1, .accumulate = DType::fp4_e2m1};
  };
  checker.values("losses", losses, [&](int64_t step) {
    return near(wanted.of_steps[static_cast<size_t>(step)], step < 10 ? 0.25 : 1);
  });
  checker.values("last_loss", last_loss, [&](int64_t) { return near(wanted.last, 0.25); });
  checker.values("held_out", held_out, [&](int64_t) { return near(wanted.held_out, 0.25); });
}

void Training::metrics(CallMetrics& metrics) const {
  if (steps() == 0) return;
  const Losses wanted = exact(*this);

  metrics["first_loss"]        = {static_cast<double>(losses(0)), "lower"};
  metrics["last_loss"]         = {static_cast<double>(last_loss(0)), "lower"};
  metrics["loss_increase"]     = {static_cast<double>(last_loss(0) - wanted.last), "lower"};
  metrics["held_out_increase"] = {static_cast<double>(held_out(0) - wanted.held_out), "lower"};
}

namespace {

const Experiment<Training> experiment{
    .question =
        "Training with operands in FP8 and FP4 (emulated): what does each recipe cost in loss, and which of "
        "NVFP4's three cures is needed?",
    .axes     = {{"steps", {60}}, {"length", {64, 256}}, {"experts", {4, 16}}},
    .quick    = {{"steps", {8}}, {"length", {64}}, {"experts", {4}}},
    .check_at = {{"steps", {0, 1, 3}}, {"length", {32}}, {"experts", {5}}},
    .variants =
        {
            {.id         = "fp8",
             .launch     = fp8,
             .techniques = {"native_low_precision_training", "fp8"},
             .idea       = "E4M3 and, of gradients, E5M2; a scale for each tensor",
             .threads    = kAllThreads},
            {.id         = "bf16",
             .launch     = bf16,
             .techniques = {"mixed_precision"},
             .idea       = "no scales",
             .prediction = predict::ratio(1.05),
             .threads    = kAllThreads},
            {.id         = "mxfp8",
             .launch     = mxfp8,
             .techniques = {"native_low_precision_training", "fp8", "block_scaling"},
             .idea       = "E4M3, a power of two for each 32 numbers",
             .prediction = predict::ratio(0.9),
             .threads    = kAllThreads},
            {.id         = "nvfp4",
             .launch     = nvfp4,
             .techniques = {"native_low_precision_training", "block_scaling"},
             .idea =
                 "E2M1, a scale for each 16 numbers; square blocks of weights, stochastic rounding, Hadamard",
             .prediction = predict::ratio(0.7),
             .threads    = kAllThreads},
            {.id         = "nvfp4_nearest",
             .launch     = nvfp4_nearest,
             .techniques = {"native_low_precision_training", "block_scaling"},
             .idea       = "gradients rounded to nearest",
             .prediction = predict::ratio(0.8),
             .threads    = kAllThreads},
            {.id         = "nvfp4_no_hadamard",
             .launch     = nvfp4_no_hadamard,
             .techniques = {"native_low_precision_training", "block_scaling"},
             .idea       = "without the Hadamard transform",
             .prediction = predict::ratio(0.75),
             .threads    = kAllThreads},
            {.id         = "nvfp4_no_squares",
             .launch     = nvfp4_no_squares,
             .techniques = {"native_low_precision_training", "block_scaling"},
             .idea       = "blocks of weights along the sum, others in each direction",
             .prediction = predict::ratio(0.7),
             .threads    = kAllThreads},
            {.id         = "nvfp4_plain",
             .launch     = nvfp4_plain,
             .techniques = {"native_low_precision_training", "block_scaling"},
             .idea       = "none of the three",
             .prediction = predict::ratio(0.85),
             .threads    = kAllThreads},
        },
    .catalog = {"training-007", "training-008", "usecase-022"},
};
FATHOM_REGISTER(experiment);

}  // namespace
}  // namespace fathom::lab::nvfp4_training
