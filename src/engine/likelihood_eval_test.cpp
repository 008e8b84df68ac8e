#include "engine/likelihood_eval.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/accuracy_eval.h"
#include "engine/resolve_config.h"
#include "model/prompt_logits.h"

namespace fathom::engine {
namespace {

using model::TokenId;

const std::string kFolder = FATHOM_SOURCE_TREE "/models/tiny";

std::unique_ptr<Engine> engine_with(EngineConfig::KvDtype kv) {
  auto opened = Engine::open(
      kFolder, {.threads = 2, .max_context = kEvaluationContext, .kv_dtype = kv, .emulate_kv_dtype = true});
  EXPECT_TRUE(opened) << opened.error().message;
  return std::move(opened).value();
}

std::vector<ForcedAnswer> some_answers(const model::Checkpoint& checkpoint, int64_t count) {
  const auto grammar = model::TaskGrammar::load(kFolder + "/tasks.toml");
  auto answers       = held_out_answers(checkpoint, grammar.value(), count, 5);
  EXPECT_TRUE(answers) << answers.error().message;
  return std::move(answers).value();
}

// The same distributions by one forward pass over prompt and answer, without an engine.
std::vector<double> logprobs_of(const model::Checkpoint& checkpoint, const ForcedAnswer& text) {
  std::vector<TokenId> all = text.prompt;
  all.insert(all.end(), text.answer.begin(), text.answer.end());
  ThreadPool threads(1);
  std::vector<double> rows;
  size_t at = 0;
  model::prompt_logits(checkpoint, all, threads, [&](std::span<const float> logits) {
    if (++at < text.prompt.size() || at == all.size()) return;
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    for (const float logit : logits) rows.push_back(static_cast<double>(logit) - std::log(sum));
  });
  return rows;
}

TEST(Likelihood, IsThatOfAForwardPassOverTheWholeText) {
  const auto engine  = engine_with(EngineConfig::KvDtype::automatic);
  const auto answers = some_answers(engine->checkpoint(), 2);
  const auto found   = evaluate_likelihood(*engine, answers);
  ASSERT_TRUE(found) << found.error().message;
  const int64_t V = engine->checkpoint().config.vocab_size;
  double nll      = 0;
  size_t token    = 0;
  for (const ForcedAnswer& text : answers) {
    const std::vector<double> expected = logprobs_of(engine->checkpoint(), text);
    ASSERT_EQ(expected.size(), text.answer.size() * static_cast<size_t>(V));
    for (size_t i = 0; i < text.answer.size(); ++i, ++token) {
      nll -= expected[i * static_cast<size_t>(V) + static_cast<size_t>(text.answer[i])];
      for (size_t id = 0; id < static_cast<size_t>(V); ++id)
        ASSERT_NEAR(found->logprobs[token * static_cast<size_t>(V) + id],
                    expected[i * static_cast<size_t>(V) + id], 1e-4)
            << "token " << i << " of an answer, id " << id;
    }
  }
  EXPECT_EQ(found->answers, static_cast<int64_t>(answers.size()));
  EXPECT_EQ(found->tokens, static_cast<int64_t>(token));
  EXPECT_NEAR(found->nll, nll / static_cast<double>(token), 1e-6);
  EXPECT_DOUBLE_EQ(found->perplexity(), std::exp(found->nll));
}

// The bundled model has learnt its tasks: a right answer rendered in another way than it was trained on would
// be far from likely.
TEST(Likelihood, RightAnswersAreLikelyAndOthersAreNot) {
  const auto engine = engine_with(EngineConfig::KvDtype::automatic);
  auto answers      = some_answers(engine->checkpoint(), 3);
  const auto right  = evaluate_likelihood(*engine, answers);
  std::rotate(answers.begin(), answers.begin() + 1, answers.end());
  for (size_t i = 0; i + 1 < answers.size(); i += 2) std::swap(answers[i].answer, answers[i + 1].answer);
  const auto wrong = evaluate_likelihood(*engine, answers);
  ASSERT_TRUE(right && wrong);
  EXPECT_LT(right->nll, 0.3);
  EXPECT_GT(wrong->nll, right->nll + 0.5);
}

TEST(Likelihood, AKvCacheInFewerBitsIsFurtherFromTheWholeOne) {
  const auto whole   = engine_with(EngineConfig::KvDtype::automatic);
  const auto answers = some_answers(whole->checkpoint(), 2);
  const auto fp32 = evaluate_likelihood(*whole, answers), again = evaluate_likelihood(*whole, answers);
  const auto bf16 = evaluate_likelihood(*engine_with(EngineConfig::KvDtype::bf16), answers);
  const auto fp8  = evaluate_likelihood(*engine_with(EngineConfig::KvDtype::fp8), answers);
  ASSERT_TRUE(fp32 && again && bf16 && fp8);
  EXPECT_EQ(kl_divergence(*fp32, *again), 0);
  EXPECT_GT(kl_divergence(*fp32, *bf16), 0);
  // The rounding error of FP8 is some ten times as large, and the divergence grows with its square.
  EXPECT_GT(kl_divergence(*fp32, *fp8), 10 * kl_divergence(*fp32, *bf16));
  EXPECT_LT(kl_divergence(*fp32, *fp8), 0.1);
}

std::unique_ptr<Engine> engine_with_activations(EngineConfig::ActivationDtype dtype, int64_t step_tokens) {
  auto opened = Engine::open(kFolder, {.threads          = 2,
                                       .max_context      = kEvaluationContext,
                                       .step_tokens      = step_tokens,
                                       .activation_dtype = dtype});
  EXPECT_TRUE(opened) << opened.error().message;
  return std::move(opened).value();
}

TEST(Likelihood, Int8ActivationsAreNearAndTheSameInAnyBatch) {
  using Dtype        = EngineConfig::ActivationDtype;
  const auto whole   = engine_with_activations(Dtype::automatic, 512),
             narrow  = engine_with_activations(Dtype::int8, 512),
             pieces  = engine_with_activations(Dtype::int8, 5);
  const auto answers = some_answers(whole->checkpoint(), 2);
  const auto fp32 = evaluate_likelihood(*whole, answers), int8 = evaluate_likelihood(*narrow, answers),
             chunked = evaluate_likelihood(*pieces, answers);
  ASSERT_TRUE(fp32 && int8 && chunked);
  EXPECT_GT(kl_divergence(*fp32, *int8), 0);
  EXPECT_LT(kl_divergence(*fp32, *int8), 0.01);
  EXPECT_EQ(int8->logprobs, chunked->logprobs);
}

TEST(Likelihood, Int8ActivationsWantMxfp4OnACpu) {
  auto checkpoint = model::Checkpoint::open(kFolder).value();
  EngineConfig int8{.max_context = 64, .activation_dtype = EngineConfig::ActivationDtype::int8};
  EXPECT_TRUE(resolve_config(checkpoint, int8));
  int8.gpu            = true;
  const auto on_a_gpu = resolve_config(checkpoint, int8);
  ASSERT_FALSE(on_a_gpu);
  EXPECT_NE(on_a_gpu.error().message.find("--activation-dtype int8 is for --device cpu"), std::string::npos);
  int8.gpu                        = false;
  checkpoint.config.mxfp4_experts = false;
  const auto in_bf16              = resolve_config(checkpoint, int8);
  ASSERT_FALSE(in_bf16);
  EXPECT_NE(in_bf16.error().message.find("fathom model quantize"), std::string::npos);
}

TEST(Likelihood, DivergenceOfKnownDistributions) {
  const auto of = [](std::vector<double> p) {
    Likelihood made{.answers = 1, .tokens = static_cast<int64_t>(p.size() / 2)};
    for (const double each : p) made.logprobs.push_back(static_cast<float>(std::log(each)));
    return made;
  };
  const Likelihood half = of({0.5, 0.5, 0.5, 0.5}), other = of({0.25, 0.75, 0.5, 0.5});
  // The mean of one token that differs and one that does not.
  EXPECT_NEAR(kl_divergence(half, other), 0.5 * (0.5 * std::log(2) + 0.5 * std::log(0.5 / 0.75)), 1e-7);
  EXPECT_NEAR(kl_divergence(other, half), 0.5 * (0.25 * std::log(0.5) + 0.75 * std::log(1.5)), 1e-7);
}

TEST(Likelihood, TooManyDistributionsAreRefused) {
  const auto engine = engine_with(EngineConfig::KvDtype::automatic);
  const std::vector<ForcedAnswer> many(3000, {.prompt = {1}, .answer = std::vector<TokenId>(500, 1)});
  const auto refused = evaluate_likelihood(*engine, many);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("--likelihood-count"), std::string::npos) << refused.error().message;
}

TEST(GreedyAgreement, EndsAtTheFirstTokenThatDiffers) {
  AccuracyReport reference, other;
  reference.tasks             = {{.task = "a", .answers = {{1, 2, 3}, {1, 2, 3}}},
                                 {.task = "b", .answers = {{4}, {5, 6, 7, 8}}}};
  other.tasks                 = {{.task = "a", .answers = {{1, 2, 3}, {1, 9, 3}}},
                                 {.task = "b", .answers = {{4, 4}, {5, 6}}}};
  const GreedyAgreement found = greedy_agreement(reference, other);
  EXPECT_EQ(found.answers, 4);
  EXPECT_EQ(found.equal, 1);
  EXPECT_EQ(found.agreed_tokens, (3 + 1 + 1 + 2) / 4.0);
  EXPECT_EQ(found.answer_tokens, (3 + 3 + 1 + 4) / 4.0);
}

// On a CPU the format saves nothing, so whoever asks for it by mistake is told; an evaluation asks on
// purpose.
TEST(Likelihood, AKvDtypeOnACpuIsForEvaluationsAlone) {
  const auto refused = Engine::open(kFolder, {.max_context = 64, .kv_dtype = EngineConfig::KvDtype::fp8});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("fathom model eval"), std::string::npos) << refused.error().message;
}

TEST(Likelihood, AnFp8CacheWantsHeadsThatItCanHold) {
  auto checkpoint = model::Checkpoint::open(kFolder).value();
  const EngineConfig fp8{.max_context = 64, .kv_dtype = EngineConfig::KvDtype::fp8, .emulate_kv_dtype = true};
  for (const auto& [size, good] : {std::pair{16, true}, {64, true}, {24, false}, {128, false}}) {
    checkpoint.config.head_dim = size;
    const auto resolved        = resolve_config(checkpoint, fp8);
    EXPECT_EQ(bool(resolved), good) << size;
    if (!good) {
      EXPECT_NE(resolved.error().message.find("head_dim is " + std::to_string(size)), std::string::npos)
          << resolved.error().message;
    }
  }
}

}  // namespace
}  // namespace fathom::engine
