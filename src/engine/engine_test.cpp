#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "engine/router_imbalance.h"
#include "model/prompt_logits.h"
#include "model/synthetic_checkpoint.h"
#include "model/tiny_checkpoint.h"

namespace fathom::engine {
namespace {

using model::TokenId;
using namespace std::chrono_literals;

// Collects the outputs of listeners and waits for their ends.
class Answers {
 public:
  struct Answer {
    std::vector<Sampled> tokens;
    std::optional<FinishReason> finish;
    std::string error;
    int64_t cached_tokens = 0, drafted = 0, accepted = 0, calls = 0;
    RequestTimes times;

    std::vector<TokenId> ids() const {
      std::vector<TokenId> ids;
      for (const Sampled& token : tokens) ids.push_back(token.id);
      return ids;
    }
  };

  Listener listener(int number) {
    return [this, number](const RequestOutput& progress) {
      const std::lock_guard lock(mutex_);
      Answer& answer = answers_[number];
      EXPECT_FALSE(answer.finish) << "told something after the end";
      ++answer.calls;
      answer.tokens.insert(answer.tokens.end(), progress.tokens.begin(), progress.tokens.end());
      answer.cached_tokens = progress.cached_tokens;
      answer.drafted = progress.drafted, answer.accepted = progress.accepted;
      answer.finish = progress.finish;
      answer.error  = progress.error;
      if (progress.times) answer.times = *progress.times;
      changed_.notify_all();
    };
  }

  // Returns false after five minutes.
  bool wait_until(const std::function<bool(const std::map<int, Answer>&)>& done) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 300s, [&] { return done(answers_); });
  }
  bool wait_for_ends(size_t count) {
    return wait_until([&](const auto& answers) {
      return std::count_if(answers.begin(), answers.end(), [](const auto& a) { return a.second.finish; }) ==
             static_cast<int64_t>(count);
    });
  }
  Answer of(int number) {
    const std::lock_guard lock(mutex_);
    return answers_[number];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Answer> answers_;
};

// A copyable Request.
struct Question {
  std::vector<TokenId> prompt;
  int64_t max_tokens = 0;
  SamplingParameters sampling{.temperature = 0};
  std::vector<TokenId> stop_ids = {};
  int64_t min_tokens            = 0;
  int priority                  = 0;

  Request request() const {
    return {.prompt     = prompt,
            .sampling   = sampling,
            .max_tokens = max_tokens,
            .min_tokens = min_tokens,
            .stop_ids   = stop_ids,
            .priority   = priority};
  }
};

class EngineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new model::TempFolder;
    ThreadPool pool(2);
    ASSERT_TRUE(model::make_synthetic_checkpoint({.shape = model::ModelShape::tiny, .seed = 3},
                                                 folder_->path(), pool));
    checkpoint_ = new model::Checkpoint(model::Checkpoint::open(folder_->path()).value());
  }
  static void TearDownTestSuite() {
    delete checkpoint_;
    delete folder_;
    checkpoint_ = nullptr;
    folder_     = nullptr;
  }

  static std::unique_ptr<Engine> engine(const EngineConfig& config) {
    auto opened = Engine::open(folder_->path(), config);
    EXPECT_TRUE(opened) << opened.error().message;
    return std::move(opened).value();
  }

  // Logits after the last token of `text`.
  static std::vector<float> logits_after(std::span<const TokenId> text) {
    ThreadPool pool(1);
    std::vector<float> last;
    model::prompt_logits(*checkpoint_, text, pool,
                         [&](std::span<const float> logits) { last.assign(logits.begin(), logits.end()); });
    return last;
  }

  // The reference without an engine: recomputes the whole text for each token that is not as guessed. One
  // pass checks a whole guess, because a token's logits depend on those before it only.
  static std::vector<TokenId> alone(const Question& question, std::vector<TokenId> guess = {}) {
    ThreadPool pool(1);
    Sampler sampler(384);
    std::vector<TokenId> answer;
    for (;;) {
      std::vector<TokenId> text = question.prompt;
      text.insert(text.end(), answer.begin(), answer.end());
      if (guess.size() > answer.size())
        text.insert(text.end(), guess.begin() + std::ssize(answer), guess.end());
      const size_t known = question.prompt.size() + answer.size();
      std::vector<std::vector<float>> logits;  // after each token of `text`
      model::prompt_logits(*checkpoint_, text, pool,
                           [&](std::span<const float> row) { logits.emplace_back(row.begin(), row.end()); });
      for (size_t i = known; i <= text.size(); ++i) {
        Restriction restriction;
        if (static_cast<int64_t>(answer.size()) < question.min_tokens) restriction.banned = question.stop_ids;
        answer.push_back(
            sampler.sample(logits[i - 1], question.sampling, question.prompt, answer, restriction)
                .value()
                .id);
        const auto& stops = question.stop_ids;
        if (std::find(stops.begin(), stops.end(), answer.back()) != stops.end() ||
            static_cast<int64_t>(answer.size()) == question.max_tokens)
          return answer;
        if (i < text.size() && answer.back() != text[i]) break;
      }
      guess.clear();
    }
  }

  static std::vector<Question> questions() {
    std::vector<Question> all;
    for (int q = 0; q < 14; ++q) {
      Question& question = all.emplace_back();
      const int length =
          std::vector{1, 2, 15, 16, 17, 33, 60, 90, 5, 40, 41, 64, 3, 70}[static_cast<size_t>(q)];
      // Half of the prompts have a common prefix, and two are equal.
      const int kind = q == 13 ? 7 : q;
      for (int t = 0; t < length; ++t)
        question.prompt.push_back(q % 2 == 1 && t < 50 ? (t * 13 + 5) % 384 : (t * t + kind * t + 3) % 384);
      question.max_tokens = 4 + (q * 11) % 50;
      if (q % 3 == 1)
        question.sampling = {.temperature = 1.0, .top_p = 0.9, .seed = static_cast<uint64_t>(q)};
      if (q % 5 == 2) question.sampling.repetition_penalty = 1.2;
      if (q % 4 == 3) question.priority = 1;
    }
    // These repeat themselves; the second one does not always.
    all[2].sampling.logit_bias = {{11, 100.0f}};
    all[4].sampling            = {.temperature = 1, .logit_bias = {{11, 52.0f}, {12, 50.0f}}, .seed = 5};
    const auto early           = [](Question question, int64_t token) {
      question.max_tokens = token + 1;
      return alone(question).back();
    };
    all[0].stop_ids = {early(all[0], 2)};
    all[9].stop_ids = {early(all[9], 1)}, all[9].min_tokens = 5;
    return all;
  }

  static std::vector<std::vector<TokenId>> answers_to(const std::vector<Question>& asked,
                                                      const EngineConfig& config, GeneratorStats* stats) {
    Answers answers;
    auto running = engine(config);
    for (size_t q = 0; q < asked.size(); ++q) {
      EXPECT_TRUE(std::holds_alternative<RequestId>(
          running->submit(asked[q].request(), answers.listener(static_cast<int>(q)))));
      // The first ones come early, so that later ones hit the prefix cache.
      if (q == 9) {
        EXPECT_TRUE(answers.wait_until([](const auto& told) { return told.size() > 5; }));
      }
    }
    EXPECT_TRUE(answers.wait_for_ends(asked.size()));
    EXPECT_TRUE(running->drain(300s));
    *stats = running->stats();
    std::vector<std::vector<TokenId>> all;
    for (size_t q = 0; q < asked.size(); ++q) all.push_back(answers.of(static_cast<int>(q)).ids());
    return all;
  }

  static void expect_same_answers(const EngineConfig& config, const std::vector<Question>& asked,
                                  const std::vector<std::vector<TokenId>>& expected, GeneratorStats* stats) {
    const auto answers = answers_to(asked, config, stats);
    for (size_t q = 0; q < asked.size(); ++q) EXPECT_EQ(answers[q], expected[q]) << "request " << q;
    EXPECT_EQ(stats->pages_in_use, 0);
    EXPECT_EQ(stats->running + stats->waiting, 0);
    int64_t prompt = 0, generated = 0;
    for (size_t q = 0; q < asked.size(); ++q)
      prompt += static_cast<int64_t>(asked[q].prompt.size()),
          generated += static_cast<int64_t>(expected[q].size());
    EXPECT_EQ(stats->prompt_tokens, prompt);
    EXPECT_EQ(stats->generated_tokens, generated);
  }

  static model::TempFolder* folder_;
  static model::Checkpoint* checkpoint_;
};

model::TempFolder* EngineTest::folder_     = nullptr;
model::Checkpoint* EngineTest::checkpoint_ = nullptr;

TEST_F(EngineTest, CountTheExpertsOfEveryToken) {
  Answers answers;
  auto running = engine({.threads = 1, .max_context = 64});
  // The last token of a sequence is not computed, so each sequence has 9 rows.
  for (const auto& [prompt, max_tokens] : {std::pair{std::vector<TokenId>{1, 2, 3}, 7}, {{4}, 9}}) {
    Question question{.prompt = prompt};
    question.max_tokens = max_tokens;
    ASSERT_TRUE(std::holds_alternative<RequestId>(
        running->submit(question.request(), answers.listener(static_cast<int>(prompt.size())))));
  }
  ASSERT_TRUE(answers.wait_for_ends(2));
  ASSERT_TRUE(running->drain(300s));
  const View<const int64_t, 2> load = running->expert_load();
  ASSERT_GT(load.extent(0), 0);
  for (int64_t l = 0; l < load.extent(0); ++l) {
    int64_t total = 0;
    for (int64_t e = 0; e < load.extent(1); ++e) total += load(l, e);
    EXPECT_EQ(total, (9 + 9) * 4) << l;
  }
}

TEST_F(EngineTest, SayWhatMemoryTheyKeep) {
  const EngineConfig config{.threads = 1, .max_context = 64, .kv_tokens = 1024, .step_tokens = 64};
  const MemoryUse use = engine(config)->stats().memory;
  // The checkpoint is one file: its header, then the weights.
  const auto file = static_cast<int64_t>(std::filesystem::file_size(folder_->path() / "model.safetensors"));
  EXPECT_LE(use.weights, file);
  EXPECT_GT(use.weights, file - file / 10);
  EXPECT_EQ(use.total(), use.weights + use.kv_cache + use.workspace);

  // Keys and values in fp32, for as many tokens as asked for in layers of full attention.
  const model::Config& c = checkpoint_->config;
  const auto full =
      static_cast<int64_t>(std::count(c.layers.begin(), c.layers.end(), model::Attention::full));
  const int64_t token = 2 * c.num_key_value_heads * c.head_dim * int64_t{sizeof(float)};
  EXPECT_GE(use.kv_cache, full * 1024 * token);
  EXPECT_LE(use.kv_cache, c.num_hidden_layers * 1024 * token);

  // Twice the rows of a step need more of every activation: at least the residual stream.
  EngineConfig wider   = config;
  wider.step_tokens    = 128;
  const MemoryUse more = engine(wider)->stats().memory;
  EXPECT_EQ(more.weights, use.weights);
  EXPECT_EQ(more.kv_cache, use.kv_cache);
  EXPECT_GE(more.workspace - use.workspace, 64 * c.hidden_size * int64_t{sizeof(float)});
}

// In any order of scheduling, the records add up to what the requests asked for.
TEST_F(EngineTest, RecordEveryStep) {
  for (const bool async : {false, true}) {
    std::vector<StepRecord> steps;
    EngineConfig config{.threads = 1, .max_context = 64, .step_tokens = 16, .async_scheduling = async};
    config.on_step = [&](const StepRecord& step) { steps.push_back(step); };
    Answers answers;
    auto running           = engine(config);
    const Question asked[] = {{.prompt = std::vector<TokenId>(40, 7), .max_tokens = 5},
                              {.prompt = {1, 2, 3}, .max_tokens = 9}};
    for (int q = 0; q < 2; ++q)
      ASSERT_TRUE(
          std::holds_alternative<RequestId>(running->submit(asked[q].request(), answers.listener(q))));
    ASSERT_TRUE(answers.wait_for_ends(2));
    ASSERT_TRUE(running->drain(300s));
    const GeneratorStats stats = running->stats();
    ASSERT_EQ(static_cast<int64_t>(steps.size()), stats.steps);
    StepRecord sum;
    const auto experts = static_cast<double>(checkpoint_->config.num_local_experts);
    for (const StepRecord& step : steps) {
      EXPECT_LT(step.launched, step.done);
      EXPECT_LE(step.prompt_rows, 16);
      sum.prompt_rows += step.prompt_rows, sum.decodes += step.decodes, sum.tokens += step.tokens;
      ASSERT_TRUE(step.router_imbalance);
      // A token goes to 4 experts, so none has more than a fourth of a layer's load.
      EXPECT_GE(*step.router_imbalance, 1);
      EXPECT_LE(*step.router_imbalance, experts / 4);
    }
    EXPECT_EQ(sum.prompt_rows, 40 + 3);
    EXPECT_EQ(sum.tokens, 5 + 9);
    EXPECT_EQ(sum.decodes, 4 + 8);  // a prompt's last rows sample the first token
    // One row meets 4 experts once each.
    EXPECT_EQ(steps.back().router_imbalance, experts / 4);
    EXPECT_EQ(stats.router_imbalance, router_imbalance(running->expert_load()));
    EXPECT_LT(*stats.router_imbalance, experts / 4);
  }
}

TEST_F(EngineTest, GiveTheSameTokensWithAnyFeatures) {
  const std::vector<Question> asked = questions();
  std::vector<std::vector<TokenId>> expected;
  GeneratorStats unused;
  const auto guesses = answers_to(asked, {.threads = 2, .max_context = 160}, &unused);
  for (size_t q = 0; q < asked.size(); ++q) expected.push_back(alone(asked[q], guesses[q]));
  EXPECT_EQ(expected[0].size(), 3u);
  EXPECT_GE(expected[9].size(), 6u);

  const EngineConfig all{.threads = 2, .max_context = 160, .kv_tokens = 4096};
  std::map<std::string, EngineConfig> configs;
  configs["all on"]                      = all;
  configs["baseline"]                    = EngineConfig::baseline();
  configs["baseline"].max_context        = 160;
  configs["one thread"]                  = all;
  configs["one thread"].threads          = 1;
  configs["three threads"]               = all;
  configs["three threads"].threads       = 3;
  configs["one at a time"]               = all;
  configs["one at a time"].max_sequences = 1;
  configs["small pieces"]                = all;
  configs["small pieces"].step_tokens    = 7;
  configs["pages of 3"]                  = all;
  configs["pages of 3"].page_size        = 3;
  configs["no async"]                    = all;
  configs["no async"].async_scheduling   = false;
  configs["few pages"]                   = all;
  configs["few pages"].kv_tokens         = 176;
  for (const int64_t drafts : {1, 3, 15}) {
    EngineConfig& c   = configs["drafts of " + std::to_string(drafts)];
    c                 = all;
    c.draft_tokens    = drafts;
    c.draft_sequences = 20;
  }
  configs["suffix drafts"]                               = configs["drafts of 15"];
  configs["suffix drafts"].draft_method                  = EngineConfig::DraftMethod::suffix;
  configs["drafts of chosen length"]                     = configs["suffix drafts"];
  configs["drafts of chosen length"].draft_budget        = true;
  configs["drafts, few pages, small pieces"]             = configs["drafts of 3"];
  configs["drafts, few pages, small pieces"].kv_tokens   = 176;
  configs["drafts, few pages, small pieces"].step_tokens = 5;
  configs["few pages, watermarks"]                       = configs["few pages"];
  configs["few pages, watermarks"].kv_high_watermark     = 0.5;
  configs["few pages, watermarks"].kv_low_watermark      = 0.3;
  configs["few pages, frequency"]                        = configs["few pages"];
  configs["few pages, frequency"].eviction               = EvictionPolicy::frequency;
  configs["few pages, adaptive eviction"]                = configs["few pages"];
  configs["few pages, adaptive eviction"].eviction       = EvictionPolicy::adaptive;
  configs["adaptive"]                                    = all;
  configs["adaptive"].adaptive                           = true;
  configs["adaptive"].draft_sequences                    = 20;

  configs["two ranks"]                                    = all;
  configs["two ranks"].tensor_parallel                    = 2;
  configs["four ranks, expert parallel"]                  = configs["drafts, few pages, small pieces"];
  configs["four ranks, expert parallel"].tensor_parallel  = 4;
  configs["four ranks, expert parallel"].expert_parallel  = true;
  configs["four ranks, expert parallel"].async_scheduling = false;

  configs["three stages"]                                       = all;
  configs["three stages"].pipeline_parallel                     = 3;
  configs["two stages of two ranks"]                            = configs["drafts, few pages, small pieces"];
  configs["two stages of two ranks"].pipeline_parallel          = 2;
  configs["two stages of two ranks"].tensor_parallel            = 2;
  configs["two stages, drafts, in one piece"]                   = configs["suffix drafts"];
  configs["two stages, drafts, in one piece"].chunked_prefill   = false;
  configs["two stages, drafts, in one piece"].pipeline_parallel = 2;

  configs["experts that move"]                 = configs["drafts of 3"];
  configs["experts that move"].tensor_parallel = 2;
  configs["experts that move"].expert_parallel = true;
  configs["experts that move"].eplb.enabled    = true;
  // 24 of some 53 steps see most of the tokens, however fast the machine is, so that a plan pays.
  configs["experts that move"].eplb.step_interval = 24;

  std::map<std::string, GeneratorStats> stats;
  for (const auto& [name, config] : configs) {
    SCOPED_TRACE(name);
    expect_same_answers(config, asked, expected, &stats[name]);
  }
  // Each configuration had its effect.
  EXPECT_GT(stats["all on"].prefix_hit_tokens, 0);
  EXPECT_EQ(stats["baseline"].prefix_hit_tokens, 0);
  EXPECT_GT(stats["few pages"].preemptions, 0);
  EXPECT_GT(stats["few pages, watermarks"].admission_holds, 0);
  EXPECT_LT(stats["few pages, watermarks"].preemptions, stats["few pages"].preemptions);
  EXPECT_GT(stats["adaptive"].setting_s[0], 0);
  EXPECT_EQ(stats["all on"].setting_s[0], 0);
  EXPECT_GT(stats["small pieces"].steps, stats["all on"].steps);
  const auto& small = stats["small pieces"].steps_by_rows;  // at most 7 rows
  EXPECT_GT(small[1], 0);
  EXPECT_EQ(small[0] + small[1], stats["small pieces"].steps);
  EXPECT_GT(stats["one at a time"].steps_by_rows[0], 0) << "of one row";
  for (const auto& [name, counted] : stats) {
    const auto& by_rows = counted.steps_by_rows;
    EXPECT_EQ(std::accumulate(by_rows.begin(), by_rows.end(), int64_t{0}), counted.steps) << name;
  }
  EXPECT_GT(stats["drafts of 3"].accepted_tokens, 0);
  EXPECT_LT(stats["drafts of 3"].accepted_tokens, stats["drafts of 3"].drafted_tokens);
  EXPECT_GT(stats["suffix drafts"].accepted_tokens, 0);
  EXPECT_EQ(stats["two ranks"].rank_imbalance, std::nullopt);
  EXPECT_EQ(stats["three stages"].rank_imbalance, std::nullopt);
  EXPECT_EQ(stats["three stages"].router_imbalance, stats["all on"].router_imbalance);
  EXPECT_GT(stats["experts that move"].eplb->experts_moved, 0);
  EXPECT_GE(stats["four ranks, expert parallel"].rank_imbalance, 1.0);
  EXPECT_LE(stats["four ranks, expert parallel"].rank_imbalance,
            stats["four ranks, expert parallel"].router_imbalance);
}

// Long enough for the tuner to try every setting. Which ones it keeps is a matter of time, the answers are
// not.
TEST_F(EngineTest, TheTunerKeepsTheAnswers) {
  std::vector<Question> asked;
  for (int i = 0; i < 10; ++i)
    asked.push_back(
        {.prompt = std::vector<TokenId>(static_cast<size_t>(3 + 9 * (i % 5)), i % 7 + 1), .max_tokens = 80});
  const auto answers_of = [&](const EngineConfig& config, GeneratorStats* stats) {
    auto running = engine(config);
    Answers answers;
    for (size_t i = 0; i < asked.size(); ++i)
      running->submit(asked[i].request(), answers.listener(static_cast<int>(i)));
    EXPECT_TRUE(answers.wait_for_ends(asked.size()));
    running->drain(60s);
    *stats = running->stats();
    std::vector<std::vector<TokenId>> ids;
    for (size_t i = 0; i < asked.size(); ++i) ids.push_back(answers.of(static_cast<int>(i)).ids());
    return ids;
  };
  EngineConfig config{.threads = 1, .max_context = 160, .max_sequences = 2, .kv_tokens = 4096};
  GeneratorStats fixed, adaptive;
  const auto expected = answers_of(config, &fixed);
  config.adaptive     = true;
  EXPECT_EQ(answers_of(config, &adaptive), expected);
  EXPECT_GT(adaptive.setting_changes, 0);
  double tried = 0;
  for (size_t i = 1; i < adaptive.setting_s.size(); ++i) tried += adaptive.setting_s[i];
  EXPECT_GT(tried, 0);
  EXPECT_EQ(fixed.drafted_tokens, 0);
}

// Tokens sampled at draft positions have the model's distribution: chi-squared over 1,500 seeds, against
// probabilities computed here.
TEST_F(EngineTest, DraftsDoNotChangeTheDistribution) {
  // The prompt has 7 after 8 and 9, so 7 is drafted once 9 is sampled, which the bias makes likely.
  const std::vector<TokenId> prompt = {8, 9, 7, 5, 8};
  const std::map<TokenId, float> bias{{9, 52.0f}, {7, 51.0f}, {6, 51.2f}, {3, 50.5f}};
  const auto probabilities = [&](std::span<const float> logits) {
    std::map<TokenId, double> p;
    double sum = 0;
    for (const auto& [id, b] : bias)
      sum += p[id] = std::exp(static_cast<double>(logits[static_cast<size_t>(id)]) + b - 50);
    for (auto& [id, value] : p) value /= sum;
    return p;
  };
  std::vector<TokenId> longer = prompt;
  longer.push_back(9);
  const auto expected = probabilities(logits_after(longer));

  Answers answers;
  auto running         = engine({.threads             = 2,
                                 .max_context         = 64,
                                 .kv_tokens           = 4096,
                                 .max_queued_requests = 5000,
                                 .draft_tokens        = 3,
                                 .draft_sequences     = 64});
  constexpr int kSeeds = 1500;
  for (int seed = 0; seed < kSeeds; ++seed) {
    Question question{
        .prompt     = prompt,
        .max_tokens = 3,
        .sampling = {.temperature = 1, .top_k = 4, .logit_bias = bias, .seed = static_cast<uint64_t>(seed)}};
    ASSERT_TRUE(
        std::holds_alternative<RequestId>(running->submit(question.request(), answers.listener(seed))));
  }
  ASSERT_TRUE(answers.wait_for_ends(kSeeds));
  std::map<TokenId, double> counts;
  int followed    = 0;
  int64_t drafted = 0, accepted = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const Answers::Answer answer = answers.of(seed);
    if (answer.ids()[0] != 9) continue;
    ++followed, ++counts[answer.ids()[1]];
    drafted += answer.drafted, accepted += answer.accepted;
  }
  ASSERT_GT(followed, 300);
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, drafted);
  double chi_squared = 0;
  for (const auto& [id, p] : expected)
    chi_squared += (counts[id] - p * followed) * (counts[id] - p * followed) / (p * followed);
  EXPECT_LT(chi_squared, 16.3) << "three degrees of freedom: a chance of 1 in 1000";
}

TEST_F(EngineTest, StreamTokensInOrderWithTimes) {
  Answers answers;
  auto running = engine({.threads = 2, .max_context = 64, .kv_tokens = 1024});
  Question question{.prompt = {1, 2, 3}, .max_tokens = 20};
  const auto before = std::chrono::steady_clock::now();
  running->submit(question.request(), answers.listener(0));
  ASSERT_TRUE(answers.wait_for_ends(1));
  const Answers::Answer answer = answers.of(0);
  EXPECT_EQ(answer.calls, 20);
  EXPECT_EQ(answer.finish, FinishReason::length);
  EXPECT_LE(before, answer.times.received);
  EXPECT_LE(answer.times.received, answer.times.scheduled);
  EXPECT_LT(answer.times.scheduled, answer.times.first_token);
  EXPECT_LT(answer.times.first_token, answer.times.finished);
}

TEST_F(EngineTest, ReuseThePrefixOfARepeatedPrompt) {
  Answers answers;
  auto running        = engine({.threads = 2, .max_context = 128, .kv_tokens = 1024, .page_size = 4});
  Question question   = questions()[6];  // 60 tokens
  question.max_tokens = 30;
  running->submit(question.request(), answers.listener(0));
  ASSERT_TRUE(answers.wait_for_ends(1));
  running->submit(question.request(), answers.listener(1));
  ASSERT_TRUE(answers.wait_for_ends(2));
  EXPECT_EQ(answers.of(0).cached_tokens, 0);
  EXPECT_EQ(answers.of(1).cached_tokens, 56);  // the last of 15 blocks has the token to compute
  EXPECT_EQ(answers.of(0).ids(), answers.of(1).ids());
  Request other    = question.request();
  other.cache_salt = "somebody else";
  running->submit(std::move(other), answers.listener(2));
  ASSERT_TRUE(answers.wait_for_ends(3));
  EXPECT_EQ(answers.of(2).cached_tokens, 0);
}

TEST_F(EngineTest, RefuseInvalidRequestsByName) {
  auto running = engine({.threads = 1, .max_context = 64, .kv_tokens = 1024});
  // The refusal of a valid request after `spoil`.
  const auto refused = [&](const std::function<void(Request&)>& spoil) {
    Request request = Question{.prompt = {1}, .max_tokens = 1}.request();
    spoil(request);
    const auto result = running->submit(std::move(request), [](const RequestOutput&) { ADD_FAILURE(); });
    return std::get<Refusal>(result);
  };
  using enum Refusal::Reason;
  EXPECT_EQ(refused([](Request& r) { r.prompt.clear(); }).reason, invalid);
  EXPECT_EQ(refused([](Request& r) { r.prompt = {384}; }).reason, invalid);
  EXPECT_EQ(refused([](Request& r) { r.prompt = {-1}; }).reason, invalid);
  EXPECT_EQ(refused([](Request& r) { r.max_tokens = 0; }).reason, invalid);
  EXPECT_EQ(refused([](Request& r) { r.sampling.top_p = 0; }).reason, invalid);
  EXPECT_EQ(refused([](Request& r) { r.stop_ids = {400}; }).reason, invalid);
  EXPECT_EQ(refused([](Request& r) { r.max_tokens = 64; }).reason, too_long);
  EXPECT_NE(refused([](Request& r) { r.max_tokens = INT64_MAX; }).message.find("context is 64"),
            std::string::npos);
}

TEST_F(EngineTest, BoundTheQueue) {
  Answers answers;
  auto running = engine({.threads             = 1,
                         .max_context         = 64,
                         .max_sequences       = 1,
                         .kv_tokens           = 64,
                         .max_queued_requests = 4,
                         .max_queued_tokens   = 100});
  int taken = 0, refused = 0;
  for (int r = 0; r < 50; ++r) {
    const auto result =
        running->submit(Question{.prompt = {1, 2}, .max_tokens = 60}.request(), answers.listener(r));
    if (const auto* refusal = std::get_if<Refusal>(&result)) {
      EXPECT_EQ(refusal->reason, Refusal::Reason::queue_full);
      ++refused;
    } else {
      ++taken;
    }
  }
  EXPECT_GE(taken, 4);
  EXPECT_GT(refused, 0);
  ASSERT_TRUE(answers.wait_for_ends(static_cast<size_t>(taken)));
  const auto result =
      running->submit(Question{.prompt = {1}, .max_tokens = 1}.request(), answers.listener(99));
  EXPECT_TRUE(std::holds_alternative<RequestId>(result)) << "it did not recover";
  ASSERT_TRUE(answers.wait_for_ends(static_cast<size_t>(taken) + 1));
}

// Cancels at every point of a request's life, from submission to the last token. A listener submits and
// cancels, so that the engine cannot run on in between.
TEST_F(EngineTest, CancellationFreesEverything) {
  for (const bool async : {false, true}) {
    Answers answers;
    auto running = engine({.threads          = 2,
                           .max_context      = 128,
                           .max_sequences    = 2,
                           .kv_tokens        = 1024,
                           .step_tokens      = 4,
                           .async_scheduling = async});
    int number   = 0;
    for (int64_t at = 0; at < 12; ++at) {
      const int opener = number++, mine = number++;
      RequestId id              = 0;
      const auto cancel_in_time = [&, at](const RequestOutput& progress) {
        answers.listener(mine)(progress);
        if (!progress.finish && answers.of(mine).calls == at) running->cancel(id);
      };
      const auto open = [&, at](const RequestOutput& progress) {
        answers.listener(opener)(progress);
        id = std::get<RequestId>(running->submit(
            Question{.prompt = std::vector<TokenId>(30, 5), .max_tokens = 90}.request(), cancel_in_time));
        if (at == 0) running->cancel(id);
      };
      running->submit(Question{.prompt = {7}, .max_tokens = 1}.request(), open);
      // Two other requests, one of which must wait.
      running->submit(Question{.prompt = {9, 9}, .max_tokens = 10}.request(), answers.listener(number++));
      running->submit(Question{.prompt = {8, 8}, .max_tokens = 10}.request(), answers.listener(number++));
      ASSERT_TRUE(answers.wait_for_ends(static_cast<size_t>(number)));
      EXPECT_EQ(answers.of(mine).finish, FinishReason::cancelled);
      EXPECT_LE(answers.of(mine).calls, at + 3);
      EXPECT_EQ(answers.of(number - 1).finish, FinishReason::length);
    }
    ASSERT_TRUE(running->drain(300s));
    EXPECT_EQ(running->stats().pages_in_use, 0);
    EXPECT_EQ(running->stats().finished[static_cast<size_t>(FinishReason::cancelled)], 12);
  }
}

TEST_F(EngineTest, NotifyEveryListenerAtTheEnd) {
  Answers answers;
  {
    auto running = engine({.threads = 2, .max_context = 256, .max_sequences = 3, .kv_tokens = 1024});
    for (int r = 0; r < 9; ++r)
      running->submit(Question{.prompt = {1, 2}, .max_tokens = 250}.request(), answers.listener(r));
  }
  EXPECT_TRUE(answers.wait_for_ends(9));
}

TEST_F(EngineTest, DrainFinishesAndRefusesNewRequests) {
  Answers answers;
  auto running = engine({.threads = 2, .max_context = 64, .kv_tokens = 1024});
  running->submit(Question{.prompt = {1, 2}, .max_tokens = 40}.request(), answers.listener(0));
  ASSERT_TRUE(running->drain(300s));
  EXPECT_EQ(answers.of(0).finish, FinishReason::length);
  const auto result =
      running->submit(Question{.prompt = {1}, .max_tokens = 1}.request(), answers.listener(1));
  EXPECT_EQ(std::get<Refusal>(result).reason, Refusal::Reason::stopping);
}

// Allows even ids only. It must see each token once, with and without drafts.
class EvenOnly final : public Constraint {
 public:
  explicit EvenOnly(std::vector<TokenId>& seen) : seen_(seen) {}
  std::unique_ptr<Constraint> clone() const override { return std::make_unique<EvenOnly>(*this); }
  void mask_logits(std::span<float> logits) override {
    for (size_t id = 1; id < logits.size(); id += 2) logits[id] = -INFINITY;
  }
  void accept_token(TokenId id) override { seen_.push_back(id); }

 private:
  std::vector<TokenId>& seen_;
};

TEST_F(EngineTest, ConstraintsSeeEveryToken) {
  for (const int64_t drafts : {0, 4}) {
    Answers answers;
    std::vector<TokenId> seen;
    auto running       = engine({.threads = 2, .max_context = 128, .kv_tokens = 160, .draft_tokens = drafts});
    Request request    = Question{.prompt = {4, 6, 8}, .max_tokens = 60}.request();
    request.constraint = std::make_unique<EvenOnly>(seen);
    running->submit(std::move(request), answers.listener(0));
    ASSERT_TRUE(answers.wait_for_ends(1));
    EXPECT_EQ(answers.of(0).ids(), seen);
    EXPECT_EQ(seen.size(), 60u);
    for (const TokenId id : seen) EXPECT_EQ(id % 2, 0);
  }
}

TEST_F(EngineTest, RefuseInvalidConfigurations) {
  const auto message = [](const EngineConfig& config) {
    const auto opened = Engine::open(folder_->path(), config);
    return opened ? std::string() : opened.error().message;
  };
  EXPECT_NE(message({.max_context = 100, .kv_tokens = 99}).find("kv_tokens is 99"), std::string::npos);
  EXPECT_NE(message({.page_size = 0}).find("page_size"), std::string::npos);
  EXPECT_NE(message({.draft_tokens = 16}).find("draft_tokens"), std::string::npos);
  EngineConfig watermarks;
  watermarks.kv_high_watermark = 0.6;
  EXPECT_NE(message(watermarks).find("--kv-low-watermark"), std::string::npos);
  EXPECT_NE(message({.draft_tokens = 4, .draft_budget = true, .adaptive = true}).find("--adaptive"),
            std::string::npos);
  EXPECT_NE(message({.kv_dtype = EngineConfig::KvDtype::fp8}).find("--kv-cache-dtype"), std::string::npos);
  EXPECT_NE(message({.emulate_kv_hadamard = true}).find("--kv-cache-hadamard"), std::string::npos);
  EXPECT_FALSE(Engine::open("/nowhere", {}));
}

}  // namespace
}  // namespace fathom::engine
