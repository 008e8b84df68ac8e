// A trainer has new weights for a server that is writing answers. How long does a client wait for its next
// token while they are brought in?
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "experiments/engine_session.h"
#include "model/bundled_model.h"

namespace fathom::lab::weight_update_cpu {

using namespace engine_session;
using Mode = engine::WeightUpdate::Mode;

constexpr int64_t kAnswer = 192;  // tokens

engine::EngineConfig config() {
  engine::EngineConfig config;
  config.max_context   = 512;
  config.max_sequences = 8;
  config.kv_tokens     = 8 * 512;
  return config;
}

// An engine whose weights are replaced once, when it has written half of its tokens. The new weights equal
// the old ones, so that no token depends on the moment.
class Updated final : public engine::Generator {
 public:
  // Without a mode, the update is a restart: requests are stopped, another engine is started with the new
  // weights, and it gets the requests with what they have. It is in one process, and the files are in the
  // system's cache, which flatters it.
  Updated(std::optional<Mode> mode, int64_t half) : mode_(mode), half_(half), engine_(open()) {
    trainer_ = std::thread([this] { update(); });
  }
  ~Updated() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    trainer_.join();
    engine_.reset();
  }

  std::variant<engine::RequestId, engine::Refusal> submit(engine::Request request,
                                                          engine::Listener listener) override {
    const std::lock_guard lock(mutex_);
    running_.push_back({.prompt     = request.prompt,
                        .sampling   = request.sampling,
                        .max_tokens = request.max_tokens,
                        .listener   = std::move(listener)});
    const auto taken = engine_->submit(std::move(request), listener_of(running_.size() - 1));
    if (const auto* id = std::get_if<engine::RequestId>(&taken)) running_.back().id = *id;
    return taken;
  }
  void cancel(engine::RequestId id, engine::FinishReason reason) override { engine_->cancel(id, reason); }
  int64_t max_context() const override { return config().max_context; }
  bool drain(std::chrono::nanoseconds timeout) override {
    std::unique_lock lock(mutex_);
    const auto updated = [&] { return updated_; };
    return changed_.wait_for(lock, timeout, updated) && (lock.unlock(), engine_->drain(timeout));
  }
  engine::GeneratorStats stats() const override {
    engine::GeneratorStats stats = engine_->stats();
    stats.steps += before_.steps;
    stats.step_rows += before_.step_rows;
    return stats;
  }

 private:
  struct Running {
    std::vector<model::TokenId> prompt, output;
    engine::SamplingParameters sampling;
    int64_t max_tokens = 0;
    engine::Listener listener;
    engine::RequestId id = 0;
    bool ended           = false;
  };

  static std::filesystem::path folder() { return model::bundled_model_folder().value(); }
  static std::unique_ptr<engine::Engine> open() {
    auto opened = engine::Engine::open(folder(), config());
    if (!opened) throw std::runtime_error(opened.error().message);
    return std::move(opened).value();
  }

  engine::Listener listener_of(size_t number) {
    return [this, number](const engine::RequestOutput& output) {
      Running* running = nullptr;
      {
        const std::lock_guard lock(mutex_);
        running = &running_[number];
        if (output.finish == engine::FinishReason::cancelled && restarting_) return;
        for (const engine::Sampled& token : output.tokens) running->output.push_back(token.id);
        running->ended = output.finish.has_value();
        written_ += std::ssize(output.tokens);
      }
      changed_.notify_all();
      running->listener(output);
    };
  }

  // Leaves updated_ false where it fails or comes too late; drain() times out then.
  void update() {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ending_ || written_ >= half_; });
      if (ending_) return;
    }
    const Status status = mode_ ? swap() : restart();
    const std::lock_guard lock(mutex_);
    updated_ = status && std::any_of(running_.begin(), running_.end(),
                                     [](const Running& running) { return !running.ended; });
    changed_.notify_all();
  }

  Status swap() {
    std::promise<Status> done;
    const Status begun = engine_->update_weights({.folder = folder(), .mode = *mode_, .version = "new"},
                                                 [&](const Status& status) { done.set_value(status); });
    return begun ? done.get_future().get() : begun;
  }

  Status restart() {
    std::vector<engine::RequestId> ids;
    {
      const std::lock_guard lock(mutex_);
      restarting_ = true;
      for (const Running& running : running_)
        if (!running.ended) ids.push_back(running.id);
    }
    for (const engine::RequestId id : ids) engine_->cancel(id, engine::FinishReason::cancelled);
    if (!engine_->drain(std::chrono::seconds(60))) return Error{"the old engine does not stop"};
    before_ = engine_->stats();
    engine_.reset();
    auto opened = engine::Engine::open(folder(), config());
    if (!opened) return opened.error();
    engine_ = std::move(opened).value();
    const std::lock_guard lock(mutex_);
    restarting_ = false;
    for (size_t r = 0; r < running_.size(); ++r) {
      Running& running = running_[r];
      if (running.ended) continue;
      engine::Request request{.prompt     = running.prompt,
                              .sampling   = running.sampling,
                              .max_tokens = running.max_tokens,
                              .resumed    = running.output};
      running.id = std::get<engine::RequestId>(engine_->submit(std::move(request), listener_of(r)));
    }
    return Ok{};
  }

  const std::optional<Mode> mode_;
  const int64_t half_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_. A request's listener and its place do not change once it is submitted.
  std::deque<Running> running_;
  int64_t written_ = 0;
  bool restarting_ = false, updated_ = false, ending_ = false;
  engine::GeneratorStats before_;  // of the engine before the restart
  // Replaced while no listener runs, and no request is submitted.
  std::unique_ptr<engine::Engine> engine_;
  std::thread trainer_;
};

Workload workload(int64_t requests) {
  return [=](uint64_t seed) {
    std::vector<Asked> asked;
    for (uint64_t i = 0; i < static_cast<uint64_t>(requests); ++i)
      asked.push_back({.prompt     = prompt_of({.seed = seed, .index = i, .shots = 2, .about = seed + i}),
                       .max_tokens = kAnswer,
                       .exactly    = true});
    return asked;
  };
}

// The longest time between two tokens that any client sees.
void report(const Seen& seen, Metrics& metrics) {
  double longest_s = 0;
  int64_t rows     = 0;
  for (const load::RequestRecord& request : seen.requests) {
    for (size_t t = 1; t < request.content_s.size(); ++t)
      longest_s = std::max(longest_s, request.content_s[t] - request.content_s[t - 1]);
    rows += request.input_tokens + request.output_tokens - 1;
  }
  metrics["longest_pause_ns"] = {1e9 * longest_s, "lower"};
  // Rows beyond one for each token of prompts and answers: keys and values that were computed again.
  metrics["recomputed_rows"] = {static_cast<double>(std::max<int64_t>(seen.stats.step_rows - rows, 0)),
                                "lower"};
}

auto starts(std::optional<Mode> mode) {
  return [mode](const Point& at) {
    const int64_t requests = at["requests"];
    return replay_on([=] { return std::make_unique<Updated>(mode, requests * kAnswer / 2); },
                     workload(requests), report);
  };
}

const Experiment<Session> experiment{
    .question =
        "Weights are replaced while eight answers are being written: how long is a client's longest wait for "
        "a token, by a restart that loses no answer, and by a swap between two steps?",
    .axes  = {{"requests", {8}}},
    .quick = {{"requests", {4}}},
    .variants =
        {
            {.id         = "restart",
             .start      = starts({}),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "chunked_prefill"},
             .idea = "another engine is started and goes on with the answers, after computing their texts "
                     "again"},
            // A row costs 0.2 ms. Both compute 8 texts of about 200 tokens again, 0.3 s; a start costs some
            // 10 ms more: reading the model, and an empty cache.
            {.id         = "retract",
             .start      = starts(Mode::retract),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "chunked_prefill",
                            "hot_weight_swap"},
             .idea = "loaded beside the old weights, swapped between two steps; texts are computed again",
             .prediction = predict::ratio_at_least(1.02)},
            // A step of 8 rows takes 2 ms. The pause is a step that shares a core with the load.
            {.id         = "keep",
             .start      = starts(Mode::keep),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "chunked_prefill",
                            "hot_weight_swap"},
             .idea       = "the same, and keys and values stay",
             .prediction = predict::ratio_at_least(10)},
        },
    .catalog = {"distributed-022"},
    .goal    = "longest_pause_ns",
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::weight_update_cpu
