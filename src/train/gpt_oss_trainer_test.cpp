// The loss against the engine's forward pass, and every gradient against finite differences of the loss.
#include "train/gpt_oss_trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/expect.h"
#include "core/rng.h"
#include "core/thread_pool.h"
#include "model/checkpoint.h"
#include "model/prompt_logits.h"
#include "model/synthetic_checkpoint.h"
#include "model/tiny_checkpoint.h"

namespace fathom::train {
namespace {

// With as many experts a token as there are, no rounding can choose others, which would be a step in the
// loss.
model::Config small_config(int64_t top_k = 4) {
  auto json = model::tiny_config();
  json.update({{"hidden_size", 32},
               {"intermediate_size", 32},
               {"vocab_size", 40},
               {"num_hidden_layers", 2},
               {"head_dim", 8},
               {"num_attention_heads", 4},
               {"num_local_experts", 4},
               {"num_experts_per_tok", top_k},
               {"experts_per_token", top_k},
               {"sliding_window", 5},
               {"swiglu_limit", 3.0},
               {"layer_types", {"sliding_attention", "full_attention"}}});
  json.erase("quantization_config");
  return model::parse_config(json.dump(), "config.json").value();
}

// Two sequences, the second longer than a window and than a block of queries; some targets do not count.
struct Text {
  std::vector<int32_t> tokens, targets;
  std::vector<int64_t> first_row;

  Text(std::vector<int64_t> lengths, int64_t vocabulary) : first_row{0} {
    for (const int64_t length : lengths) first_row.push_back(first_row.back() + length);
    const int64_t T = first_row.back();
    tokens.resize(static_cast<size_t>(T)), targets.resize(static_cast<size_t>(T));
    fill_integers(tokens.data(), T, 11, 0, vocabulary);
    fill_integers(targets.data(), T, 12, 0, vocabulary);
    for (size_t i = 0; i < targets.size(); i += 3) targets[i] = -1;
  }
  TokenBatch batch() const { return {.tokens = tokens, .targets = targets, .first_row = first_row}; }
};

Parameters random_parameters(const model::Config& config) {
  Parameters parameters(config);
  uint64_t seed = 100;
  for (const TensorPlace& place : parameters.places()) {
    const bool norm        = place.name.ends_with("norm.weight");
    const double deviation = norm ? 0.1 : place.name.ends_with("router.weight") ? 2 : 0.25;
    fill_normal(parameters.of(place).data(), place.size, ++seed, norm ? 1 : 0, deviation);
  }
  return parameters;
}

// The gradient along a random direction of one tensor, by central differences. Steps are so small that they
// seldom meet the bend where a clamp lets go, and so large that fp32 shows the difference.
template <class Loss>
void expect_gradient(std::span<float> numbers, std::span<const float> gradient, uint64_t seed,
                     const std::string& name, const Loss& loss) {
  std::vector<float> direction(numbers.size()), before(numbers.begin(), numbers.end());
  fill_normal(direction.data(), static_cast<int64_t>(direction.size()), seed, 0, 1);
  double along = 0, length = 0;
  for (size_t i = 0; i < direction.size(); ++i) {
    along += static_cast<double>(direction[i]) * gradient[i];
    length += static_cast<double>(gradient[i]) * gradient[i];
  }
  const double step = 2e-3 / std::sqrt(static_cast<double>(numbers.size()));
  const auto at     = [&](double by) {
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = static_cast<float>(before[i] + by * direction[i]);
    return loss();
  };
  const double difference = (at(step) - at(-step)) / (2 * step);
  std::copy(before.begin(), before.end(), numbers.begin());
  EXPECT_GT(std::sqrt(length), 1e-6) << name << ": nothing reaches it";
  EXPECT_NEAR(along, difference, 0.03 * std::sqrt(length) + 5e-4) << name;
}

TEST(GptOssTrainer, LossIsThatOfTheEnginesForwardPass) {
  const model::TempFolder folder;
  ThreadPool threads(2);
  ASSERT_TRUE(model::make_synthetic_checkpoint({.shape = model::ModelShape::tiny, .seed = 3}, folder.path(),
                                               threads));
  const auto checkpoint = model::Checkpoint::open(folder.path()).value();
  const auto parameters = parameters_of(checkpoint.config, checkpoint.weights);
  const Text text({70}, checkpoint.config.vocab_size);
  double wanted = 0;
  size_t at     = 0;
  model::prompt_logits(checkpoint, text.tokens, threads, [&](std::span<const float> logits) {
    const int32_t target = text.targets[at++];
    if (target < 0) return;
    const double most = *std::ranges::max_element(logits);
    double sum        = 0;
    for (const float logit : logits) sum += std::exp(logit - most);
    wanted += std::log(sum) + most - logits[static_cast<size_t>(target)];
  });
  GptOssTrainer trainer(checkpoint.config, {}, 0, threads);
  EXPECT_NEAR(trainer.loss(parameters, text.batch()), wanted / static_cast<double>(text.batch().counted()),
              2e-3);
}

TEST(GptOssTrainer, SequencesDoNotSeeEachOther) {
  const auto config     = small_config();
  const auto parameters = random_parameters(config);
  ThreadPool threads(2);
  GptOssTrainer trainer(config, {}, 0, threads);
  const Text both({13, 70}, config.vocab_size);
  double sum = 0;
  for (size_t s = 0; s < 2; ++s) {
    const auto begin = static_cast<size_t>(both.first_row[s]),
               end   = static_cast<size_t>(both.first_row[s + 1]);
    const std::vector<int64_t> rows{0, static_cast<int64_t>(end - begin)};
    const TokenBatch one{.tokens    = std::span(both.tokens).subspan(begin, end - begin),
                         .targets   = std::span(both.targets).subspan(begin, end - begin),
                         .first_row = rows};
    sum += trainer.loss(parameters, one) * static_cast<double>(one.counted());
  }
  EXPECT_NEAR(trainer.loss(parameters, both.batch()), sum / static_cast<double>(both.batch().counted()),
              1e-5);
}

TEST(GptOssTrainer, EveryGradientIsThatOfFiniteDifferences) {
  ThreadPool threads(2);
  for (const auto& [top_k, text] : {std::pair(int64_t{4}, Text({13, 70, 1}, 40)),
                                    {int64_t{2}, Text({9}, 40)},
                                    {int64_t{4}, Text({300}, 40)}}) {
    const auto config = small_config(top_k);
    auto parameters   = random_parameters(config);
    GptOssTrainer trainer(config, {}, 0, threads);
    Parameters gradients(config);
    const double loss = trainer.loss_and_gradients(parameters, text.batch(), &gradients);
    EXPECT_DOUBLE_EQ(loss, trainer.loss(parameters, text.batch()));
    uint64_t seed = 0;
    for (const TensorPlace& place : parameters.places())
      expect_gradient(parameters.of(place), gradients.of(place), ++seed, place.name,
                      [&] { return trainer.loss(parameters, text.batch()); });
  }
}

TEST(GptOssTrainer, GradientsAddUpAndDependOnNoThreads) {
  const auto config     = small_config();
  const auto parameters = random_parameters(config);
  const Text text({40, 9}, config.vocab_size);
  ThreadPool one(1), three(3);
  Parameters once(config), twice(config);
  GptOssTrainer(config, {}, 0, one).loss_and_gradients(parameters, text.batch(), &once);
  GptOssTrainer trainer(config, {}, 0, three);
  trainer.loss_and_gradients(parameters, text.batch(), &twice);
  EXPECT_TRUE(std::ranges::equal(once.all(), twice.all()));
  trainer.loss_and_gradients(parameters, text.batch(), &twice);
  for (size_t i = 0; i < once.all().size(); ++i) ASSERT_NEAR(twice.all()[i], 2 * once.all()[i], 1e-5) << i;
}

TEST(GptOssTrainer, AdaptersHaveTheirGradientsAndMergeIntoTheMatrices) {
  const auto config = small_config();
  auto parameters   = random_parameters(config);
  ThreadPool threads(2);
  GptOssTrainer trainer(config, {}, 0, threads);
  const Text text({13, 30}, config.vocab_size);
  Lora lora(config, 3, 6), gradients(config, 3, 6);
  initialize(lora, 5);
  EXPECT_NEAR(trainer.loss(parameters, text.batch(), &lora), trainer.loss(parameters, text.batch()), 1e-6)
      << "a new adapter changes nothing";
  fill_normal(lora.all().data(), static_cast<int64_t>(lora.all().size()), 9, 0, 0.2);
  trainer.loss_and_gradients(parameters, text.batch(), nullptr, &lora, &gradients);
  uint64_t seed = 50;
  for (const TensorPlace& place : lora.places()) {
    const auto part = [&](const Lora& of) {
      return of.all().subspan(static_cast<size_t>(place.offset), static_cast<size_t>(place.size));
    };
    expect_gradient(part(lora), part(gradients), ++seed, place.name,
                    [&] { return trainer.loss(parameters, text.batch(), &lora); });
  }
  const double with = trainer.loss(parameters, text.batch(), &lora);
  merge(lora, parameters);
  EXPECT_NEAR(trainer.loss(parameters, text.batch()), with, 1e-4);
}

TEST(GptOssTrainer, FewBitsTurnGradientsALittle) {
  const auto config = small_config();
  Parameters parameters(config);
  initialize(parameters, 1);
  ThreadPool threads(2);
  const Text text({64, 64}, config.vocab_size);
  Parameters exact(config);
  GptOssTrainer(config, {}, 0, threads).loss_and_gradients(parameters, text.batch(), &exact);
  const auto cosine = [&](const Recipe& recipe) {
    Parameters rounded(config);
    GptOssTrainer(config, recipe, 1, threads).loss_and_gradients(parameters, text.batch(), &rounded);
    double dot = 0, a = 0, b = 0;
    for (size_t i = 0; i < exact.all().size(); ++i) {
      const double x = exact.all()[i], y = rounded.all()[i];
      dot += x * y, a += x * x, b += y * y;
    }
    return dot / std::sqrt(a * b);
  };
  const double bf16 = cosine({.precision = Precision::bf16}), fp8 = cosine({.precision = Precision::fp8}),
               mxfp8 = cosine({.precision = Precision::mxfp8}),
               nvfp4 = cosine({.precision = Precision::nvfp4});
  EXPECT_GT(bf16, 0.9999);
  EXPECT_GT(mxfp8, 0.999);
  EXPECT_GT(fp8, 0.999);
  EXPECT_GT(nvfp4, 0.99);
  EXPECT_GT(bf16, fp8);
  EXPECT_GT(bf16, mxfp8);
  EXPECT_GT(fp8, nvfp4);
  EXPECT_LT(nvfp4, 0.9999) << "nothing was rounded";
}

TEST(GptOssTrainer, RefusesABatchThatIsNone) {
  const auto config     = small_config();
  const auto parameters = random_parameters(config);
  ThreadPool threads(1);
  GptOssTrainer trainer(config, {}, 0, threads);
  Text text({4}, config.vocab_size);
  text.tokens[2] = static_cast<int32_t>(config.vocab_size);
  EXPECT_THROW(trainer.loss(parameters, text.batch()), ContractError);
  text.tokens[2] = 0;
  text.targets.assign(4, -1);
  EXPECT_THROW(trainer.loss(parameters, text.batch()), ContractError);
  text.first_row = {0, 3};
  EXPECT_THROW(trainer.loss(parameters, text.batch()), ContractError);
}

}  // namespace
}  // namespace fathom::train
