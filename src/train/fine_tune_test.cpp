#include "train/fine_tune.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "core/rng.h"
#include "model/tiny_checkpoint.h"

namespace fathom::train {
namespace {

model::Config config() {
  auto json = model::tiny_config();
  json.update({{"vocab_size", 64},
               {"num_hidden_layers", 2},
               {"layer_types", {"sliding_attention", "full_attention"}}});
  json.erase("quantization_config");
  return model::parse_config(json.dump(), "config.json").value();
}

// Four sequences to be learnt by heart.
std::vector<Example> examples() {
  std::vector<Example> all;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    std::vector<int32_t> tokens(17);
    fill_integers(tokens.data(), 17, seed, 0, 64);
    Example one{.tokens = tokens, .targets = tokens};
    one.targets.erase(one.targets.begin());
    one.targets.push_back(-1);
    all.push_back(one);
  }
  return all;
}

const TrainingHooks kToTheEnd{.on_step = [](const TrainingStep&, const TrainingState&) { return true; }};

TEST(FineTune, LearnsFourSequencesByHeart) {
  ThreadPool threads(2);
  Parameters parameters(config());
  initialize(parameters, 1);
  const auto texts = examples();
  EXPECT_NEAR(mean_loss(config(), parameters, texts, 1000, threads), std::log(64), 0.3);
  std::vector<TrainingStep> steps;
  fine_tune(config(), parameters, texts,
            {.steps = 80, .batch_tokens = 68, .learning_rate = 5e-3, .warmup_steps = 5}, threads,
            {.on_step = [&](const TrainingStep& step, const TrainingState&) {
              steps.push_back(step);
              return true;
            }});
  ASSERT_EQ(steps.size(), 80u);
  EXPECT_EQ(steps.back().step, 80);
  EXPECT_DOUBLE_EQ(steps.back().epochs, 80);
  const double after = mean_loss(config(), parameters, texts, 20, threads);
  EXPECT_LT(after, 0.5);
  EXPECT_NEAR(after, mean_loss(config(), parameters, texts, 1000, threads), 1e-4) << "batches do not matter";
}

TEST(FineTune, AdaptersLeaveTheRestAlone) {
  ThreadPool threads(2);
  Parameters parameters(config());
  initialize(parameters, 1);
  const std::vector<float> before(parameters.all().begin(), parameters.all().end());
  const auto texts    = examples();
  const double loss   = mean_loss(config(), parameters, texts, 1000, threads);
  const auto adapters = fine_tune(config(), parameters, texts,
                                  {.steps         = 30,
                                   .batch_tokens  = 68,
                                   .learning_rate = 2e-2,
                                   .warmup_steps  = 2,
                                   .optimizer     = {.weight_decay = 0},
                                   .lora_rank     = 4},
                                  threads, kToTheEnd);
  ASSERT_TRUE(adapters);
  EXPECT_LT(mean_loss(config(), parameters, texts, 1000, threads), loss - 0.1);
  for (const TensorPlace& place : parameters.places()) {
    const bool adapted = place.name.ends_with("_proj.weight");
    const bool changed =
        !std::equal(parameters.of(place).begin(), parameters.of(place).end(), before.begin() + place.offset);
    EXPECT_EQ(changed, adapted) << place.name;
  }
}

TEST(FineTune, StopsWhereItIsTold) {
  ThreadPool threads(1);
  Parameters parameters(config());
  initialize(parameters, 1);
  int64_t steps = 0;
  fine_tune(config(), parameters, examples(), {.steps = 50, .batch_tokens = 20}, threads,
            {.on_step = [&](const TrainingStep& step, const TrainingState&) {
              steps = step.step;
              return step.step < 3;
            }});
  EXPECT_EQ(steps, 3);
}

// After each number of steps, with what is drawn at random, all parameters and adapters. The epochs have
// three batches.
TEST(FineTune, GoesOnFromAStateToTheSameBits) {
  ThreadPool threads(1);
  for (const int64_t rank : {0, 3})
    for (const Precision precision : {Precision::fp32, Precision::nvfp4}) {
      const FineTuneOptions options{.steps         = 7,
                                    .batch_tokens  = 34,
                                    .learning_rate = 5e-3,
                                    .warmup_steps  = 3,
                                    .lora_rank     = rank,
                                    .recipe        = {.precision = precision},
                                    .seed          = 5};
      struct Saved {
        std::vector<float> weights, first, second;
      };
      std::vector<Saved> after;
      std::vector<double> losses;
      Parameters whole(config());
      initialize(whole, 1);
      const auto copy = [](std::span<float> numbers) { return std::vector(numbers.begin(), numbers.end()); };
      fine_tune(
          config(), whole, examples(), options, threads,
          {.on_step = [&](const TrainingStep& step, const TrainingState& state) {
            losses.push_back(step.loss);
            after.push_back({copy(state.weights), copy(state.first_moments), copy(state.second_moments)});
            return true;
          }});
      ASSERT_EQ(after.size(), 7u);
      for (int64_t steps = 1; steps <= 7; ++steps) {
        SCOPED_TRACE(testing::Message() << "rank " << rank << ", from step " << steps);
        Parameters again(config());
        initialize(again, 1);
        const Saved& saved = after[static_cast<size_t>(steps - 1)];
        fine_tune(config(), again, examples(), options, threads,
                  {.on_step =
                       [&](const TrainingStep& step, const TrainingState&) {
                         EXPECT_EQ(step.loss, losses[static_cast<size_t>(step.step - 1)]);
                         return true;
                       },
                   .restore =
                       [&](TrainingState& state) {
                         state.steps = steps;
                         std::ranges::copy(saved.weights, state.weights.begin());
                         std::ranges::copy(saved.first, state.first_moments.begin());
                         std::ranges::copy(saved.second, state.second_moments.begin());
                       }});
        EXPECT_TRUE(std::ranges::equal(again.all(), whole.all()));
      }
    }
}

TEST(FineTune, ALossThatIsNotFiniteEndsIt) {
  ThreadPool threads(1);
  Parameters parameters(config());
  initialize(parameters, 1);
  parameters.layers[0].q(0, 0) = NAN;
  EXPECT_THROW(
      fine_tune(config(), parameters, examples(), {.steps = 5, .batch_tokens = 20}, threads, kToTheEnd),
      std::runtime_error);
}

TEST(FineTune, TheRateRisesAndFalls) {
  const FineTuneOptions options{.steps = 110, .learning_rate = 1, .warmup_steps = 10};
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 9), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 10), 1);
  EXPECT_NEAR(learning_rate_at(options, 60), 0.5, 1e-12);
  EXPECT_LT(learning_rate_at(options, 109), 1e-3);
  EXPECT_GT(learning_rate_at({.steps = 1, .learning_rate = 1, .warmup_steps = 0}, 0), 0.9);
}

}  // namespace
}  // namespace fathom::train
