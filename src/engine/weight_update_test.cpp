// Weights that are replaced while requests run. The reference: an engine that was started with the weights of
// a token's version and gets the tokens before it as Request::resumed.
#include "engine/weight_update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/hash_runner.h"
#include "model/gpt_oss.h"
#include "model/kv_cache.h"
#include "model/synthetic_checkpoint.h"
#include "model/tiny_checkpoint.h"

namespace fathom::engine {
namespace {

using model::TokenId;
using UpdateMode = WeightUpdate::Mode;
using namespace std::chrono_literals;

struct PutQuestion {
  std::vector<TokenId> prompt;
  int64_t max_tokens = 8;
  SamplingParameters sampling{.temperature = 0, .logprobs = 0};

  Request request(std::vector<TokenId> resumed = {}) const {
    return {.prompt = prompt, .sampling = sampling, .max_tokens = max_tokens, .resumed = std::move(resumed)};
  }
};

struct VersionedAnswer {
  std::vector<TokenId> tokens;
  std::vector<double> logprobs;       // of each token; bits of the logits
  std::vector<std::string> versions;  // of each token
  std::optional<FinishReason> finish;
  std::string error, last_version;
  int64_t cached_tokens = 0;
};

// Sends requests to an engine and hears their answers.
class VersionedClient {
 public:
  explicit VersionedClient(Engine& engine) : engine_(engine) {}

  size_t ask(Request request) {
    const std::lock_guard lock(mutex_);
    const size_t number = answers_.size();
    answers_.emplace_back();
    const auto taken = engine_.submit(std::move(request), [this, number](const RequestOutput& output) {
      const std::lock_guard told(mutex_);
      VersionedAnswer& answer = answers_[number];
      for (const Sampled& token : output.tokens) {
        answer.tokens.push_back(token.id);
        answer.logprobs.push_back(token.logprob.value_or(0));
        answer.versions.emplace_back(output.weight_version);
      }
      answer.finish        = output.finish;
      answer.error         = output.error;
      answer.last_version  = output.weight_version;
      answer.cached_tokens = output.cached_tokens;
      changed_.notify_all();
    });
    EXPECT_TRUE(std::holds_alternative<RequestId>(taken));
    ids_.push_back(std::get<RequestId>(taken));
    return number;
  }
  VersionedAnswer answer(size_t number) {
    const std::lock_guard lock(mutex_);
    return answers_[number];
  }
  bool wait(size_t number, const std::function<bool(const VersionedAnswer&)>& until,
            std::chrono::seconds most = 300s) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, most, [&] { return until(answers_[number]); });
  }
  void wait_for_tokens(size_t number, size_t count) {
    EXPECT_TRUE(wait(number, [&](const VersionedAnswer& a) { return a.tokens.size() >= count || a.finish; }));
  }
  VersionedAnswer ended(size_t number) {
    EXPECT_TRUE(wait(number, [](const VersionedAnswer& a) { return a.finish.has_value(); }));
    return answer(number);
  }
  void cancel(size_t number) { engine_.cancel(ids_[number]); }
  size_t asked() const { return ids_.size(); }

 private:
  Engine& engine_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<VersionedAnswer> answers_;
  std::vector<RequestId> ids_;
};

std::future<Status> update(Engine& engine, WeightUpdate what) {
  auto promise = std::make_shared<std::promise<Status>>();
  auto future  = promise->get_future();
  const auto begun =
      engine.update_weights(std::move(what), [promise](const Status& s) { promise->set_value(s); });
  EXPECT_TRUE(begun) << begun.error().message;
  return future;
}

std::string outcome(std::future<Status> future) {
  if (future.wait_for(300s) != std::future_status::ready) return "(never ended)";
  const Status status = future.get();
  return status ? "" : status.error().message;
}

class WeightUpdates : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ThreadPool pool(2);
    folders_ = new std::map<std::string, model::TempFolder>;
    for (const auto& [name, seed, bf16] :
         {std::tuple{"a", 3, false}, {"b", 4, false}, {"a bf16", 3, true}, {"b bf16", 4, true}})
      ASSERT_TRUE(model::make_synthetic_checkpoint({.seed = static_cast<uint64_t>(seed), .bf16 = bf16},
                                                   (*folders_)[name].path(), pool));
  }
  static void TearDownTestSuite() { delete folders_; }

  static std::filesystem::path folder(const std::string& name) { return folders_->at(name).path(); }
  static std::unique_ptr<Engine> engine(const std::string& name, EngineConfig config) {
    config.weight_version = name;
    auto opened           = Engine::open(folder(name), config);
    EXPECT_TRUE(opened) << opened.error().message;
    return std::move(opened).value();
  }
  static EngineConfig small() {
    return {.threads = 1, .max_context = 256, .max_sequences = 8, .kv_tokens = 1024, .step_tokens = 32};
  }

  static std::vector<PutQuestion> questions(size_t count, uint32_t seed = 1) {
    std::mt19937 random(seed);
    std::vector<PutQuestion> all(count);
    for (size_t q = 0; q < count; ++q) {
      const size_t length = std::array<size_t, 7>{1, 15, 16, 17, 40, 33, 60}[q % 7];
      for (size_t t = 0; t < length; ++t)
        all[q].prompt.push_back(static_cast<TokenId>(q % 2 == 1 && t < 32 ? t * 7 + 1 : random() % 384));
      all[q].max_tokens = 4 + static_cast<int64_t>(random() % 20);
      if (q % 5 == 3) all[q].sampling.logit_bias = {{11, 100.0f}};  // it repeats itself: drafts are right
      if (q % 3 == 1) all[q].sampling = {.temperature = 1.5, .seed = q, .logprobs = 0};
    }
    return all;
  }

  static std::map<std::string, model::TempFolder>* folders_;
};

std::map<std::string, model::TempFolder>* WeightUpdates::folders_ = nullptr;

// One engine for each version, which was started with its weights.
class VersionReferences {
 public:
  VersionReferences(std::unique_ptr<Engine> a, std::unique_ptr<Engine> b) {
    engines_["a"] = std::move(a), engines_["b"] = std::move(b);
  }
  // Every token, and its probability to the last bit, is that of its version after the tokens before it.
  void expect(const PutQuestion& question, const VersionedAnswer& heard) {
    EXPECT_EQ(heard.error, "");
    for (size_t begin = 0; begin < heard.tokens.size();) {
      const std::string& version = heard.versions[begin];
      size_t end                 = begin;
      while (end < heard.tokens.size() && heard.versions[end] == version) ++end;
      PutQuestion asked = question;  // a token does not depend on how many may come
      if (heard.finish != FinishReason::length || end < heard.tokens.size())
        asked.max_tokens = static_cast<int64_t>(end);
      const auto first = static_cast<int64_t>(begin), last = static_cast<int64_t>(end);
      VersionedClient client(*engines_.at(version.substr(0, 1)));
      const VersionedAnswer expected =
          client.ended(client.ask(asked.request({heard.tokens.begin(), heard.tokens.begin() + first})));
      EXPECT_EQ(std::vector(heard.tokens.begin() + first, heard.tokens.begin() + last), expected.tokens)
          << "tokens from " << begin << " on, of version " << version;
      EXPECT_EQ(std::vector(heard.logprobs.begin() + first, heard.logprobs.begin() + last), expected.logprobs)
          << "tokens from " << begin << " on, of version " << version;
      begin = end;
    }
  }

 private:
  std::map<std::string, std::unique_ptr<Engine>> engines_;
};

TEST_F(WeightUpdates, AnswersAreThenThoseOfAnEngineStartedWithTheNewOnes) {
  const auto asked = questions(7);
  std::map<std::string, EngineConfig> configs;
  configs["one rank"] = configs["synchronous"] = configs["drafts"] = configs["two ranks"] = configs["bf16"] =
      configs["baseline"] = configs["int8 activations"] = configs["copied"] = configs["two stages"] = small();
  configs["two stages"].pipeline_parallel                                                           = 2;
  configs["synchronous"].async_scheduling                                                           = false;
  configs["drafts"].draft_tokens                                                                    = 4;
  configs["two ranks"].tensor_parallel                                                              = 2;
  configs["baseline"]                          = small().plain();
  configs["copied"].mmap                       = false;
  configs["int8 activations"].activation_dtype = EngineConfig::ActivationDtype::int8;
  for (const char* name : {"expert parallel", "eplb", "eplb bf16"}) {
    configs[name]                 = configs["two ranks"];
    configs[name].expert_parallel = true;
  }
  // Experts keep their places: sums in another order would be other bits.
  configs["eplb"].eplb = {
      .enabled = true, .window_size = 5, .step_interval = 100000, .num_redundant_experts = 2};
  configs["eplb bf16"].eplb = configs["eplb"].eplb;
  for (const auto& [name, config] : configs) {
    SCOPED_TRACE(name);
    const std::string format = name.ends_with("bf16") ? " bf16" : "";
    auto serving             = engine("a" + format, config);
    VersionedClient client(*serving);
    const auto answers_of = [&](VersionedClient& of) {
      std::vector<size_t> numbers;
      for (const PutQuestion& question : asked) numbers.push_back(of.ask(question.request()));
      std::vector<std::pair<std::vector<TokenId>, std::vector<double>>> all;
      for (const size_t number : numbers) {
        const VersionedAnswer answer = of.ended(number);
        all.emplace_back(answer.tokens, answer.logprobs);
      }
      return all;
    };
    const auto answers  = [&] { return answers_of(client); };
    const auto expected = [&](const std::string& of) {
      auto fresh = engine(of + format, config);
      VersionedClient reference(*fresh);
      return answers_of(reference);
    };
    const auto of_a = expected("a"), of_b = expected("b");
    EXPECT_NE(of_a, of_b);
    EXPECT_EQ(answers(), of_a);
    for (const char* next : {"b", "a"}) {
      ASSERT_EQ(outcome(update(*serving, {.folder = folder(next + format), .version = next})), "");
      const VersionedAnswer first = client.ended(client.ask(asked[4].request()));
      EXPECT_EQ(first.cached_tokens, 0) << "a prefix of other weights was found";
      EXPECT_EQ(first.last_version, next);
      EXPECT_EQ(answers(), *next == 'a' ? of_a : of_b);
      EXPECT_EQ(serving->stats().weight_version, next);
    }
    EXPECT_EQ(serving->stats().weight_updates, 2);
    EXPECT_EQ(serving->stats().memory.weights, engine("a" + format, config)->stats().memory.weights);
  }
}

// Mode::wait: what has begun ends by the old weights, and what comes then waits for the new ones.
TEST_F(WeightUpdates, WaitsForRequestsThatHaveBegun) {
  EngineConfig config = small();
  config.max_context = config.kv_tokens = 8192;
  auto serving                          = engine("a", config);
  VersionedClient client(*serving);
  VersionReferences references(engine("a", config), engine("b", config));
  const PutQuestion endless{.prompt = {5, 6, 7}, .max_tokens = 8000},
      short_one{.prompt = {9, 8}, .max_tokens = 1};
  const size_t running = client.ask(endless.request());
  client.wait_for_tokens(running, 3);
  auto updated = update(*serving, {.folder = folder("b"), .version = "b"});
  // Until the weights are loaded, others begin as ever.
  size_t held = client.ask(short_one.request());
  while (client.wait(
      held, [](const VersionedAnswer& a) { return a.finish.has_value(); }, 1s)) {
    references.expect(short_one, client.answer(held));
    EXPECT_EQ(client.answer(held).last_version, "a");
    held = client.ask(short_one.request());
  }
  EXPECT_EQ(updated.wait_for(0s), std::future_status::timeout);
  const size_t before = client.answer(running).tokens.size();
  client.wait_for_tokens(running, before + 10);  // the old ones serve on
  ASSERT_FALSE(client.answer(running).finish);
  client.cancel(running);
  EXPECT_EQ(outcome(std::move(updated)), "");
  const VersionedAnswer then = client.ended(held), old = client.ended(running);
  EXPECT_EQ(then.last_version, "b");
  references.expect(short_one, then);
  EXPECT_EQ(old.versions, std::vector<std::string>(old.tokens.size(), "a"));
  references.expect(endless, old);
}

TEST_F(WeightUpdates, AbortsRequestsThatHaveBegun) {
  EngineConfig config  = small();
  config.max_sequences = 1;
  config.max_context = config.kv_tokens = 8192;
  auto serving                          = engine("a", config);
  VersionedClient client(*serving);
  VersionReferences references(engine("a", config), engine("b", config));
  const PutQuestion endless{.prompt = {5, 6, 7}, .max_tokens = 8000},
      next{.prompt = {9, 8, 7}, .max_tokens = 20};
  const size_t running = client.ask(endless.request());
  client.wait_for_tokens(running, 3);
  const size_t waiting = client.ask(next.request());
  EXPECT_EQ(outcome(update(*serving, {.folder = folder("b"), .mode = UpdateMode::abort, .version = "b"})),
            "");
  const VersionedAnswer cut = client.ended(running), whole = client.ended(waiting);
  EXPECT_EQ(cut.finish, FinishReason::cancelled);
  EXPECT_EQ(cut.last_version, "a");
  references.expect(endless, cut);
  EXPECT_EQ(whole.finish, FinishReason::length);
  EXPECT_EQ(whole.versions, std::vector<std::string>(20, "b"));
  references.expect(next, whole);
}

TEST_F(WeightUpdates, RetractedRequestsGoOnAsIfTheNewOnesHadWrittenThem) {
  for (const bool drafts : {false, true}) {
    EngineConfig config = small();
    config.max_context = config.kv_tokens = 8192;
    config.draft_tokens                   = drafts ? 4 : 0;
    auto serving                          = engine("a", config);
    VersionedClient client(*serving);
    VersionReferences references(engine("a", config), engine("b", config));
    std::vector<PutQuestion> asked = questions(5);
    for (PutQuestion& question : asked) question.max_tokens = 2000;
    for (const PutQuestion& question : asked) client.ask(question.request());
    for (size_t q = 0; q < asked.size(); ++q) client.wait_for_tokens(q, 3);
    EXPECT_EQ(outcome(update(*serving, {.folder = folder("b"), .mode = UpdateMode::retract, .version = "b"})),
              "");
    for (size_t q = 0; q < asked.size(); ++q) {
      EXPECT_TRUE(client.wait(
          q, [](const VersionedAnswer& a) { return a.last_version == "b" && a.versions.back() == "b"; }));
      client.cancel(q);
      const VersionedAnswer heard = client.ended(q);
      EXPECT_EQ(heard.versions.front(), "a");
      references.expect(asked[q], heard);
    }
  }
}

// The reference is a forward pass by itself: positions that the old weights computed, and the rest.
TEST_F(WeightUpdates, KeptRequestsGoOnWithTheirKeysAndValues) {
  const auto a = model::Checkpoint::open(folder("a")).value(),
             b = model::Checkpoint::open(folder("b")).value();
  ThreadPool thread(1);
  const auto greedy = [&](const std::vector<TokenId>& text, size_t prompt, size_t computed_by_a) {
    constexpr int64_t kPage = 64;
    const auto pages        = static_cast<int64_t>(text.size()) / kPage + 1;
    std::vector<int32_t> table(static_cast<size_t>(pages));
    for (size_t p = 0; p < table.size(); ++p) table[p] = static_cast<int32_t>(p);
    const View<const int32_t, 2> tables(table.data(), {1, pages});
    const model::KvCache kv(a.config, pages, pages, kPage);
    model::GptOss old(a.config, a.weights, model::cpu_ops(), 1, 1, thread),
        young(b.config, b.weights, model::cpu_ops(), 1, 1, thread);
    std::vector<float> logits(384);
    std::vector<TokenId> chosen;
    for (size_t p = 0; p + 1 < text.size(); ++p) {
      model::GptOss& by          = p < computed_by_a ? old : young;
      const int32_t first_row[2] = {0, 1}, row = 0, position = static_cast<int32_t>(p);
      by.forward({.tokens       = View<const int32_t, 1>(&text[p], {1}),
                  .rows         = {.first_row = View<const int32_t, 1>(first_row, {2}),
                                   .positions = View<const int32_t, 1>(&position, {1}),
                                   .pages     = tables},
                  .window_pages = tables},
                 kv);
      if (p + 1 < prompt) continue;
      by.logits(View<const int32_t, 1>(&row, {1}), View<float, 2>(logits.data(), {1, 384}));
      chosen.push_back(static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    }
    return chosen;
  };

  for (const bool async : {true, false}) {
    EngineConfig config     = small();
    config.max_context      = 4096;
    config.kv_tokens        = 16384;
    config.async_scheduling = async;
    auto serving            = engine("a", config);
    VersionedClient client(*serving);
    VersionReferences references(engine("a", config), engine("b", config));
    std::vector<PutQuestion> asked = questions(5);
    for (PutQuestion& question : asked)
      question.max_tokens = 1000, question.sampling = {.temperature = 0, .logprobs = 0};
    for (const PutQuestion& question : asked) client.ask(question.request());
    for (size_t q = 0; q < asked.size(); ++q) client.wait_for_tokens(q, 3);
    EXPECT_EQ(outcome(update(*serving, {.folder = folder("b"), .mode = UpdateMode::keep, .version = "b"})),
              "");
    for (size_t q = 0; q < asked.size(); ++q) {
      // Long enough for blocks that begin by the old weights and end by the new ones.
      EXPECT_TRUE(client.wait(q, [](const VersionedAnswer& heard) {
        return std::count(heard.versions.begin(), heard.versions.end(), "b") > 20;
      }));
      client.cancel(q);
      const VersionedAnswer heard = client.ended(q);
      const auto by_a = static_cast<size_t>(std::count(heard.versions.begin(), heard.versions.end(), "a"));
      ASSERT_GT(by_a, 0u);
      EXPECT_TRUE(std::is_sorted(heard.versions.begin(), heard.versions.end()));
      std::vector<TokenId> text = asked[q].prompt;
      text.insert(text.end(), heard.tokens.begin(), heard.tokens.end());
      // The latest token of the old weights is computed in the step that yields the next one.
      EXPECT_EQ(heard.tokens, greedy(text, asked[q].prompt.size(), asked[q].prompt.size() + by_a - 1))
          << "request " << q << " of " << by_a;
      // Nobody finds the blocks that it leaves.
      const PutQuestion same{.prompt = text, .max_tokens = 4};
      for (const bool again : {false, true}) {
        const VersionedAnswer fresh = client.ended(client.ask(same.request()));
        if (!again && q % 2 == 0) {  // the others begin alike
          EXPECT_EQ(fresh.cached_tokens, 0);
        }
        if (again) {
          EXPECT_EQ(fresh.cached_tokens, (static_cast<int64_t>(text.size()) - 1) / 16 * 16);
        }
        references.expect(same, fresh);
      }
    }
  }
}

TEST_F(WeightUpdates, BadFoldersLeaveTheOldOnesInUse) {
  auto serving = engine("a", small());
  VersionedClient client(*serving);
  VersionReferences references(engine("a", small()), engine("b", small()));
  const auto refused = [&](const std::filesystem::path& from) {
    std::string why = outcome(update(*serving, {.folder = from, .version = "bad"}));
    const PutQuestion question{.prompt = {1, 2, 3}, .max_tokens = 5};
    const VersionedAnswer heard = client.ended(client.ask(question.request()));
    EXPECT_EQ(heard.last_version, "a");
    references.expect(question, heard);
    EXPECT_EQ(serving->stats().weight_version, "a");
    EXPECT_EQ(serving->stats().weight_updates, 0);
    return why;
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos ? testing::AssertionSuccess()
                                                : testing::AssertionFailure() << text;
  };
  EXPECT_TRUE(has(refused("/no/such/folder"), "/no/such/folder/config.json: cannot be read"));

  const model::TempFolder bad;
  std::filesystem::copy(folder("b"), bad.path(), std::filesystem::copy_options::recursive);
  const auto weights = bad.path() / "model.safetensors";
  const auto size    = std::filesystem::file_size(weights);
  for (const auto bytes : {size - 1, size / 2, uintmax_t{100}, uintmax_t{4}, uintmax_t{0}}) {
    std::filesystem::resize_file(weights, bytes);
    EXPECT_TRUE(has(refused(bad.path()), "model.safetensors: ")) << bytes;
  }
  std::filesystem::remove(weights);
  EXPECT_TRUE(has(refused(bad.path()), "holds neither"));

  // A tensor by another name, and one of another shape.
  std::string bytes(size, '\0');
  std::ifstream(folder("b") / "model.safetensors", std::ios::binary)
      .read(bytes.data(), static_cast<std::streamsize>(size));
  const std::string name = "model.layers.2.self_attn.sinks";
  std::string renamed    = bytes;
  renamed.replace(renamed.find(name), name.size(), "model.layers.2.self_attn.sunks");
  model::write_file(weights, renamed);
  EXPECT_TRUE(has(refused(bad.path()), "'model.layers.2.self_attn.sinks' is missing"));

  nlohmann::json config = nlohmann::json::parse(std::ifstream(folder("b") / "config.json"));
  model::write_file(weights, bytes);
  for (const auto& [key, value, text] :
       {std::tuple{"sliding_window", 16, "config.json: 'sliding_window' is 16, not 8"},
        {"rope_theta", 10000, "'rope_theta' is 10000, not 150000"},
        {"num_hidden_layers", 2, "'num_hidden_layers' is 2, not 4"}}) {
    nlohmann::json other = config;
    other[key]           = value;
    if (other["num_hidden_layers"] == 2) other["layer_types"] = {"sliding_attention", "full_attention"};
    model::write_file(bad.path() / "config.json", other.dump());
    EXPECT_TRUE(has(refused(bad.path()), text));
  }
  EXPECT_TRUE(has(refused(folder("b bf16")), "its experts are BF16, not MXFP4"));
  // And after all that, a good one.
  EXPECT_EQ(outcome(update(*serving, {.folder = folder("b"), .version = "b"})), "");
  EXPECT_EQ(serving->stats().weight_version, "b");
}

// A trainer may write its next weights over the files.
TEST_F(WeightUpdates, DoNotReadTheFilesLater) {
  const model::TempFolder trained;
  std::filesystem::copy(folder("b"), trained.path(), std::filesystem::copy_options::recursive);
  auto serving = engine("a", small());
  ASSERT_EQ(outcome(update(*serving, {.folder = trained.path(), .version = "b"})), "");
  std::filesystem::resize_file(trained.path() / "model.safetensors",
                               0);  // would be SIGBUS where it is mapped
  VersionedClient client(*serving);
  VersionReferences references(engine("a", small()), engine("b", small()));
  for (const PutQuestion& question : questions(5)) {
    const VersionedAnswer heard = client.ended(client.ask(question.request()));
    EXPECT_EQ(heard.last_version, "b");
    references.expect(question, heard);
  }
}

TEST_F(WeightUpdates, OneAtATimeAndNoneThatOutlivesTheEngine) {
  EngineConfig config = small();
  config.max_context = config.kv_tokens = 8192;
  auto serving                          = engine("a", config);
  VersionedClient client(*serving);
  const PutQuestion endless{.prompt = {5, 6, 7}, .max_tokens = 8000};
  const size_t running = client.ask(endless.request());
  client.wait_for_tokens(running, 1);
  auto first        = update(*serving, {.folder = folder("b"), .version = "b"});
  const auto second = serving->update_weights({.folder = folder("b")}, [](const Status&) { FAIL(); });
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message,
            "another update of the weights is under way: try again when it has ended");
  serving.reset();
  EXPECT_EQ(client.ended(running).finish, FinishReason::cancelled);
  EXPECT_EQ(outcome(std::move(first)), "the engine ended before the new weights were in use");
}

TEST_F(WeightUpdates, AreRefusedWhereTheyCannotBe) {
  const auto checkpoint = model::Checkpoint::open(folder("a")).value();
  Counts counts;
  struct Rigid final : HashRunner {
    using HashRunner::HashRunner;
    Status swap_weights(std::vector<model::ProcessedWeights>& ranks) override {
      return ModelRunner::swap_weights(ranks);
    }
  };
  const auto started = Engine::start(checkpoint, small(), [&](const auto& pages) {
    return std::make_unique<Rigid>(small(), pages, false, counts);
  });
  ASSERT_TRUE(started);
  EXPECT_EQ(outcome(update(**started, {.folder = folder("b")})),
            "weights on a hash cannot be replaced while it serves");
}

// Steps that overlap, as on a GPU; requests that come, are preempted and go; and updates in any mode between.
TEST_F(WeightUpdates, ReplacedBetweenAnyTwoSteps) {
  const auto checkpoint = model::Checkpoint::open(folder("a")).value();
  for (const bool follows : {false, true})
    for (const int64_t kv_tokens : {4096, 200}) {
      Counts counts;
      EngineConfig config{
          .max_context = 128, .max_sequences = 6, .kv_tokens = kv_tokens, .page_size = 4, .step_tokens = 24};
      config.weight_version = "0";
      auto started          = Engine::start(checkpoint, config, [&](const auto& pages) {
        return std::make_unique<HashRunner>(config, pages, follows, counts);
      });
      ASSERT_TRUE(started);
      VersionedClient client(**started);
      std::mt19937 random(static_cast<uint32_t>(kv_tokens));
      std::vector<PutQuestion> asked;
      std::map<UpdateMode, int> spanned;
      std::vector<UpdateMode> modes = {UpdateMode::wait};  // by version
      for (int round = 1; round <= 12; ++round) {
        for (PutQuestion& question : questions(8, static_cast<uint32_t>(round))) {
          question.max_tokens = 1 + static_cast<int64_t>(random() % 60);
          client.ask(question.request());
          asked.push_back(std::move(question));
        }
        modes.push_back(std::array{UpdateMode::wait, UpdateMode::abort, UpdateMode::retract}[random() % 3]);
        ASSERT_EQ(
            outcome(update(**started,
                           {.folder = folder("b"), .mode = modes.back(), .version = std::to_string(round)})),
            "");
      }
      for (size_t q = 0; q < asked.size(); ++q) {
        const VersionedAnswer heard = client.ended(q);
        std::vector<TokenId> text   = asked[q].prompt;
        for (size_t t = 0; t < heard.tokens.size(); ++t) {
          const auto version = static_cast<uint64_t>(std::stoi(heard.versions[t]));
          uint64_t hash      = 1;
          for (const TokenId token : text) hash = mixed(hash ^ version, token);
          ASSERT_EQ(heard.tokens[t], token_of(hash)) << "request " << q << ", token " << t;
          text.push_back(heard.tokens[t]);
          if (t > 0 && heard.versions[t] != heard.versions[t - 1]) ++spanned[modes[version]];
        }
        if (heard.finish == FinishReason::length) {
          EXPECT_EQ(std::ssize(heard.tokens), asked[q].max_tokens);
        } else {
          EXPECT_EQ(heard.finish, FinishReason::cancelled);
        }
      }
      EXPECT_EQ(spanned[UpdateMode::wait] + spanned[UpdateMode::abort], 0);
      ASSERT_TRUE((*started)->drain(300s));
      EXPECT_EQ((*started)->stats().pages_in_use, 0);
      EXPECT_EQ((*started)->stats().weight_updates, 12);
    }
}

// Everything at once on the model: a cache in few bits and too small, chunks, drafts, shared prefixes, ranks.
TEST_F(WeightUpdates, UnderLoadWithACompressedCache) {
  for (const bool ranks : {false, true}) {
    EngineConfig config     = small();
    config.kv_tokens        = 320;
    config.kv_dtype         = EngineConfig::KvDtype::fp8;
    config.emulate_kv_dtype = true;
    config.draft_tokens     = 3;
    config.step_tokens      = 24;
    if (ranks) config.tensor_parallel = 2, config.expert_parallel = true;
    auto serving = engine("a", config);
    VersionReferences references(engine("a", config), engine("b", config));
    VersionedClient client(*serving);
    std::mt19937 random(5);
    std::vector<PutQuestion> asked;
    int spanned = 0;
    for (int round = 1; round <= 6; ++round) {
      for (PutQuestion& question : questions(5, static_cast<uint32_t>(round))) {
        question.max_tokens = 10 + static_cast<int64_t>(random() % 60);
        client.ask(question.request());
        asked.push_back(std::move(question));
      }
      client.wait_for_tokens(asked.size() - 3, 1 + random() % 5);
      const std::string next = round % 2 == 1 ? "b" : "a";
      const UpdateMode mode  = std::array{UpdateMode::retract, UpdateMode::wait,
                                         UpdateMode::abort}[static_cast<size_t>(round) % 3];
      ASSERT_EQ(
          outcome(update(*serving,
                         {.folder = folder(next), .mode = mode, .version = next + std::to_string(round)})),
          "");
    }
    for (size_t q = 0; q < asked.size(); ++q) {
      const VersionedAnswer heard = client.ended(q);
      SCOPED_TRACE(testing::Message() << "request " << q);
      references.expect(asked[q], heard);
      spanned += !heard.versions.empty() && heard.versions.front() != heard.versions.back();
    }
    EXPECT_GT(spanned, 0);
    EXPECT_GT(serving->stats().preemptions, 0);
    EXPECT_GT(serving->stats().accepted_tokens, 0);
  }
}

}  // namespace
}  // namespace fathom::engine
