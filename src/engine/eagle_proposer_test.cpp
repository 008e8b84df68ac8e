// The bundled model and its drafter, models/tiny/drafter.
#include "engine/eagle_proposer.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "core/source_tree.h"
#include "core/thread_pool.h"
#include "engine/engine.h"
#include "model/gpt_oss.h"
#include "model/kv_cache.h"
#include "model/ops.h"

namespace fathom::engine {
namespace {

using Ids = std::vector<model::TokenId>;

const std::filesystem::path& tiny() {
  static const std::filesystem::path folder =
      std::filesystem::path(find_source_tree().value_or(".")) / "models/tiny";
  return folder;
}

const model::Checkpoint& bundled_checkpoint() {
  static const model::Checkpoint checkpoint = model::Checkpoint::open(tiny()).value();
  return checkpoint;
}

nlohmann::json trainers_drafts() {
  std::ifstream file(std::filesystem::path(find_source_tree().value_or(".")) / "tests/goldens/drafter.json");
  return nlohmann::json::parse(file);
}

// Against PyTorch's drafts of the same weights after each token of a conversation (tools/train_drafter.py
// --check).
TEST(EagleProposer, DraftsAsTheTrainerDoes) {
  const auto golden  = trainers_drafts();
  const auto tokens  = golden.at("tokens").get<Ids>();
  const auto& target = bundled_checkpoint();
  const auto T       = std::ssize(tokens);
  ThreadPool threads(1);
  model::GptOss model(target.config, target.weights, model::cpu_ops(), T, 1, threads);
  model::KvCache kv(target.config, 1, 1, T);
  auto drafter = model::Eagle::open(tiny() / "drafter", target, model::cpu_ops(), threads);
  ASSERT_TRUE(drafter) << drafter.error().message;
  EagleProposer proposer(std::move(drafter).value());
  model.tap(proposer.taps());

  std::vector<int32_t> positions(tokens.size()), first_row = {0, static_cast<int32_t>(T)}, pages = {0};
  for (size_t p = 0; p < positions.size(); ++p) positions[p] = static_cast<int32_t>(p);
  const std::vector<int32_t> ids(tokens.begin(), tokens.end());
  const View<const int32_t, 2> table(pages.data(), {1, 1});
  model.forward({.tokens       = View<const int32_t, 1>(ids.data(), {T}),
                 .rows         = {.first_row = View<const int32_t, 1>(first_row.data(), {2}),
                                  .positions = View<const int32_t, 1>(positions.data(), {T}),
                                  .pages     = table},
                 .window_pages = table},
                kv);

  Request request;
  request.prompt = {tokens[0]};
  Sequence sequence(1, std::move(request), Listener(), TimePoint());
  int64_t compared = 0, equal = 0;
  const View<const float, 2> features = model.features();
  for (int64_t size = 2; size < T; ++size) {
    sequence.tokens.assign(tokens.begin(), tokens.begin() + size);
    sequence.num_computed_tokens = size - 1;
    // Also the residuals of a draft that is rejected: they are written over.
    const int64_t rows = std::min<int64_t>(2, T - (size - 2));
    proposer.computed(1, size - 2, {&features(size - 2, 0), {rows, features.extent(1)}});
    const Draft draft = proposer.propose(sequence, 4);
    const auto theirs = golden.at("drafts").at(static_cast<size_t>(size - 2)).get<Ids>();
    for (size_t k = 0; k < draft.tokens.size(); ++k) {
      ++compared, equal += draft.tokens[k] == theirs[k];
      if (draft.tokens[k] != theirs[k]) break;
    }
  }
  // PyTorch sums in another order, which decides between tokens that are nearly as likely.
  EXPECT_GT(compared, T);
  EXPECT_GE(static_cast<double>(equal), 0.98 * static_cast<double>(compared));
}

std::vector<Ids> answers_of(const EngineConfig& config, double temperature, GeneratorStats& stats) {
  const auto prompt = trainers_drafts().at("tokens").get<Ids>();
  auto engine       = Engine::start(bundled_checkpoint(), config).value();
  std::vector<Ids> all(4);
  std::mutex mutex;
  std::condition_variable changed;
  size_t ended = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    Request request;
    request.prompt.assign(prompt.begin(), prompt.begin() + 10 + static_cast<int64_t>(9 * i));
    request.max_tokens           = 20;
    request.sampling.temperature = temperature;
    request.sampling.seed        = i;
    const auto id                = engine->submit(std::move(request), [&, i](const RequestOutput& output) {
      const std::lock_guard lock(mutex);
      for (const Sampled& sampled : output.tokens) all[i].push_back(sampled.id);
      if (output.finish) ++ended, changed.notify_all();
    });
    EXPECT_TRUE(std::holds_alternative<RequestId>(id));
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ended == all.size(); });
  lock.unlock();
  engine->drain(std::chrono::seconds(60));
  stats = engine->stats();
  return all;
}

TEST(EagleProposer, DoesNotChangeAnswers) {
  EngineConfig plain;
  plain.threads = 1, plain.max_context = 128, plain.kv_tokens = 1024;
  EngineConfig drafting    = plain;
  drafting.draft_tokens    = 5;
  drafting.draft_sequences = 8;
  drafting.draft_method    = EngineConfig::DraftMethod::eagle3;
  drafting.draft_model     = (tiny() / "drafter").string();
  EngineConfig small       = drafting;  // preempted and computed again, prompts in pieces
  small.kv_tokens = 128, small.step_tokens = 9;
  EngineConfig alone  = drafting;
  alone.max_sequences = 1;
  EngineConfig budget = drafting;
  budget.draft_budget = true;
  for (const double temperature : {0.0, 1.0}) {
    GeneratorStats stats;
    const auto expected = answers_of(plain, temperature, stats);
    for (const EngineConfig& config : {drafting, small, alone, budget}) {
      EXPECT_EQ(answers_of(config, temperature, stats), expected);
      if (!config.draft_budget) {
        EXPECT_GT(stats.accepted_tokens, 0);
      }
    }
  }
}

// Rank 0 drafts, from the residual stream that all have.
TEST(EagleProposer, DraftsForSeveralRanks) {
  EngineConfig config{.threads = 2, .tensor_parallel = 2, .expert_parallel = true, .max_context = 128};
  GeneratorStats stats;
  const auto expected    = answers_of(config, 0, stats);
  config.draft_tokens    = 5;
  config.draft_sequences = 8;
  config.draft_method    = EngineConfig::DraftMethod::eagle3;
  config.draft_model     = (tiny() / "drafter").string();
  EXPECT_EQ(answers_of(config, 0, stats), expected);
  EXPECT_GT(stats.accepted_tokens, 0);
}

TEST(EagleProposer, SaysWhatIsWrongWithADraftModel) {
  const auto message = [](const std::filesystem::path& folder) {
    ThreadPool threads(1);
    const auto drafter = model::Eagle::open(folder, bundled_checkpoint(), model::cpu_ops(), threads);
    return drafter ? "" : drafter.error().message;
  };
  EXPECT_NE(message("/nowhere").find("/nowhere/config.json"), std::string::npos);
  EXPECT_NE(message(tiny()).find("eagle_aux_hidden_state_layer_ids"),
            std::string::npos);  // the target itself
}

}  // namespace
}  // namespace fathom::engine
