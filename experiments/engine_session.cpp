#include "experiments/engine_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>
#include <tuple>
#include <utility>

#include "core/expect.h"
#include "core/rng.h"
#include "engine/engine.h"
#include "load/arrivals.h"
#include "measure/statistics.h"
#include "model/bundled_model.h"
#include "model/harmony.h"

namespace fathom::lab::engine_session {
namespace {

using Clock = std::chrono::steady_clock;
using engine::TimePoint;

double seconds_between(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

template <class T>
T value_or_throw(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}

Bundled open() {
  const auto found = model::bundled_model_folder();
  if (!found)
    throw Unavailable("needs_model", "the bundled one, models/tiny in the source tree or beside the program");
  const std::string folder = found->string();
  Bundled bundled{.checkpoint = value_or_throw(model::Checkpoint::open(folder)),
                  .grammar    = value_or_throw(model::TaskGrammar::load(folder + "/tasks.toml"))};
  FATHOM_EXPECT(bundled.checkpoint.tokenizer && bundled.checkpoint.harmony,
                "the bundled model has its tokenizer, with harmony's tokens");
  for (const model::Task& task : bundled.grammar.tasks())
    if (task.measured) bundled.tasks.push_back(&task);
  return bundled;
}

// One replay. Listeners run on the engines' threads.
class Run {
 public:
  explicit Run(std::unique_ptr<engine::Generator> generator) : generator_(std::move(generator)) {}
  ~Run() {
    const std::lock_guard lock(mutex_);
    cut_short_ = true;
  }

  Seen play(std::vector<Asked> asked) {
    seen_.asked = std::move(asked);
    seen_.requests.resize(seen_.asked.size());
    seen_.outputs.resize(seen_.asked.size());
    seen_.cached_tokens.resize(seen_.asked.size());
    for (size_t i = 0; i < seen_.asked.size(); ++i)
      seen_.requests[i].content_s.reserve(static_cast<size_t>(seen_.asked[i].max_tokens));

    std::vector<size_t> order(seen_.asked.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const Asked &x = seen_.asked[a], &y = seen_.asked[b];
      return std::tuple(x.phase, x.at_s, x.bucket) < std::tuple(y.phase, y.at_s, y.bucket);
    });
    start_ = Clock::now();
    for (size_t first = 0; first < order.size();) {
      const auto phase = [&](size_t at) { return seen_.asked[order[at]].phase; };
      size_t end       = first;
      while (end < order.size() && phase(end) == phase(first)) ++end;
      play_phase(std::span(order).subspan(first, end - first), end);
      first = end;
    }
    const double duration_s = seconds_between(start_, Clock::now());
    FATHOM_EXPECT(error_.empty(), "a request of the workload failed: " + error_);
    // Its counters are complete once it is drained.
    FATHOM_EXPECT(generator_->drain(std::chrono::seconds(10)), "the engine drains after the last answer");
    seen_.stats   = generator_->stats();
    seen_.summary = load::summarize(seen_.requests, duration_s);
    if (!submits_s_.empty()) seen_.submit_s = measure::median(submits_s_);
    if (samples_ > 0)
      seen_.pages /= static_cast<double>(samples_), seen_.slots_used /= static_cast<double>(samples_);
    return std::move(seen_);
  }

 private:
  // Returns when `ended` requests have ended.
  void play_phase(std::span<const size_t> order, size_t ended) {
    const TimePoint start = Clock::now();
    for (const size_t i : order) {
      std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(
                                                std::chrono::duration<double>(seen_.asked[i].at_s)));
      submit(i, seconds_between(start_, start));
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ == ended; });
    seen_.phase_s.push_back(seconds_between(start, Clock::now()));
  }

  void submit(size_t i, double phase_at_s) {
    const Asked& asked = seen_.asked[i];
    const auto& model  = bundled().checkpoint;
    engine::Request request{.prompt     = asked.prompt,
                            .sampling   = {.temperature = asked.temperature, .seed = asked.sampling_seed},
                            .max_tokens = asked.max_tokens,
                            .priority   = asked.priority};
    if (!asked.exactly) request.stop_ids = model.eos_ids;
    load::RequestRecord& record = seen_.requests[i];
    record.scheduled_s          = phase_at_s + asked.at_s;
    record.input_tokens         = static_cast<int64_t>(asked.prompt.size());
    const TimePoint before      = Clock::now();
    record.sent_s               = seconds_between(start_, before);
    const auto taken =
        generator_->submit(std::move(request), [this, i](const engine::RequestOutput& p) { note(i, p); });
    submits_s_.push_back(seconds_between(before, Clock::now()));
    if (const auto* refused = std::get_if<engine::Refusal>(&taken)) {
      // A full queue is a valid reply; any other refusal is an error of the experiment.
      FATHOM_EXPECT(refused->reason == engine::Refusal::Reason::queue_full, refused->message);
      record.state   = load::RequestRecord::State::failed;
      record.ended_s = seconds_between(start_, Clock::now());
      record.error   = refused->message;
      const std::lock_guard lock(mutex_);
      ++ended_;
    }
  }

  void note(size_t i, const engine::RequestOutput& progress) {
    const double now_s = seconds_between(start_, Clock::now());
    const std::lock_guard lock(mutex_);
    if (cut_short_) return;
    load::RequestRecord& record = seen_.requests[i];
    for (const engine::Sampled& token : progress.tokens) seen_.outputs[i].push_back(token.id);
    record.output_tokens = static_cast<int64_t>(seen_.outputs[i].size());
    if (!progress.tokens.empty()) {
      if (record.content_s.empty()) live_.push_back(i);
      record.content_s.push_back(now_s);
      sample();
    }
    if (!progress.finish) return;
    seen_.cached_tokens[i] = progress.cached_tokens;
    std::erase(live_, i);
    record.ended_s = now_s;
    record.state   = load::RequestRecord::State::completed;
    using enum engine::FinishReason;
    if (*progress.finish != stop && *progress.finish != length)
      error_ = progress.error.empty() ? engine::name_of(*progress.finish) : progress.error;
    ++ended_;
    changed_.notify_all();
  }

  // A token takes a slot in the pages of layers with full attention, and a slot in those of layers with a
  // window while it lies in the window.
  void sample() {
    const engine::GeneratorStats stats = generator_->stats();
    seen_.peak_running                 = std::max(seen_.peak_running, stats.running);
    seen_.peak_pages                   = std::max(seen_.peak_pages, stats.pages_in_use);
    if (stats.running != static_cast<int64_t>(live_.size())) return;
    const int64_t window = bundled().checkpoint.config.sliding_window;
    for (const size_t i : live_) {
      const int64_t tokens = seen_.requests[i].input_tokens + seen_.requests[i].output_tokens;
      seen_.slots_used += static_cast<double>(tokens + std::min(tokens, window));
    }
    seen_.pages += static_cast<double>(stats.pages_in_use);
    ++samples_;
  }

  TimePoint start_;
  std::vector<double> submits_s_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_.
  Seen seen_;
  std::vector<size_t> live_;  // have had a token, but not their last
  int64_t samples_ = 0;
  size_t ended_    = 0;
  bool cut_short_  = false;  // the replay was cut short and its generator is about to end
  std::string error_;        // of the last request that failed
  // The last member, so that it is destroyed first: its listeners use the others.
  std::unique_ptr<engine::Generator> generator_;
};

class EngineSession final : public Session {
 public:
  EngineSession(std::unique_ptr<engine::Generator> generator, Workload workload, MoreMetrics more)
      : run_(std::move(generator)), workload_(std::move(workload)), more_(std::move(more)) {}

  void prepare(uint64_t seed) override { asked_ = workload_(seed); }

  Replay replay() override {
    Seen seen = run_.play(std::move(asked_));
    Replay replay{.metrics = usual_metrics(seen)};
    if (more_) more_(seen, replay.metrics);
    replay.outputs = std::move(seen.outputs);
    return replay;
  }

 private:
  Run run_;
  Workload workload_;
  std::vector<Asked> asked_;
  MoreMetrics more_;
};

}  // namespace

const Bundled& bundled() {
  static const Bundled bundled = open();
  return bundled;
}

std::vector<model::TokenId> prompt_of(const Case& asked) {
  const Bundled& with = bundled();
  const auto case_of  = [&](uint64_t seed, uint64_t index) {
    const model::Task& task = asked.task.empty() ? *with.tasks[index % with.tasks.size()]
                                                  : *value_or_throw(with.grammar.find(asked.task));
    return model::make_case(task, seed, index);
  };
  std::vector<model::HarmonyMessage> messages = {
      {.role = "system", .content = with.checkpoint.system_prompt}};
  for (int64_t shot = 0; shot < asked.shots; ++shot) {
    const model::TaskCase shown = case_of(asked.about, static_cast<uint64_t>(shot));
    messages.push_back({.role = "user", .content = shown.prompt});
    messages.push_back({.role = "assistant", .channel = "final", .content = shown.answer});
  }
  messages.push_back({.role = "user", .content = case_of(asked.seed, asked.index).prompt});
  return value_or_throw(
      model::render_harmony(*with.checkpoint.tokenizer, *with.checkpoint.harmony, messages));
}

Workload short_answers(int64_t count) {
  return [=](uint64_t seed) {
    std::vector<Asked> asked;
    for (int64_t i = 0; i < count; ++i)
      asked.push_back({.prompt = prompt_of({.seed = seed, .index = static_cast<uint64_t>(i)})});
    return asked;
  };
}

Workload answers_of_many_lengths(int64_t count) {
  return [=](uint64_t seed) {
    std::vector<Asked> asked = short_answers(count)(seed);
    std::vector<double> doublings(asked.size());
    fill_uniform(doublings.data(), count, seed, 0, 5);
    for (size_t i = 0; i < asked.size(); ++i) {
      asked[i].max_tokens = std::lround(8 * std::exp2(doublings[i]));
      asked[i].exactly    = true;
    }
    return asked;
  };
}

Metrics usual_metrics(const Seen& seen) {
  Metrics metrics;
  const load::Summary& s = seen.summary;
  const auto times       = [&](const std::string& name, const load::Distribution& of) {
    for (const int p : {50, 95, 99})
      if (const auto value = of.percentile(p))
        metrics[fmt::format("{}_p{}_ns", name, p)] = {*value * 1e9, "lower"};
  };
  times("ttft", s.ttft);
  times("tpot", s.tpot);
  times("itl", s.itl);
  times("e2e", s.e2el);
  metrics["output_tokens_per_s"] = {s.output_throughput, "higher"};
  const auto steps               = static_cast<double>(seen.stats.steps);
  metrics["steps"]               = {steps, "lower"};
  if (steps > 0) metrics["rows_per_step"] = {static_cast<double>(seen.stats.step_rows) / steps, "higher"};
  metrics["memory_bytes"]  = {static_cast<double>(seen.stats.memory.total()), "lower"};
  metrics["peak_kv_pages"] = {static_cast<double>(seen.peak_pages), "lower"};
  if (seen.stats.router_imbalance) metrics["router_imbalance"] = {*seen.stats.router_imbalance, "lower"};
  return metrics;
}

engine::EngineConfig on_gpu() {
  engine::EngineConfig config = engine::EngineConfig::on_gpu();
  config.max_context          = 1024;
  config.max_sequences        = 64;
  config.kv_tokens            = 64 * 1024;
  config.step_tokens          = 512;
  config.batch_invariant      = true;
  return config;
}

void count_graphs(const Seen& seen, Metrics& metrics) {
  metrics["graphs"] = {static_cast<double>(seen.stats.graphs), "lower"};
}

Start engine_of(const engine::EngineConfig& config) {
  if (config.gpu)
    if (const Status can = engine::gpu_can_run(bundled().checkpoint, engine::EngineConfig::on_gpu()); !can)
      throw Unavailable("needs_cuda", can.error().message);
  return [config] { return value_or_throw(engine::Engine::start(bundled().checkpoint, config)); };
}

std::unique_ptr<Session> replay_on(const Start& start, const Workload& workload, const MoreMetrics& more) {
  return std::make_unique<EngineSession>(start(), workload, more);
}

double saturation_rps(const Start& start, const Workload& workload) {
  double best = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    std::vector<Asked> asked = workload(seed);
    for (Asked& request : asked) request.at_s = 0;
    best = std::max(best, Run(start()).play(std::move(asked)).summary.request_throughput);
  }
  return best;
}

void arrive(std::vector<Asked>& asked, double rps, uint64_t seed) {
  const auto times =
      load::arrival_times({.request_rate = rps, .seed = seed}, static_cast<int64_t>(asked.size()));
  for (size_t i = 0; i < asked.size(); ++i) asked[i].at_s = times[i];
}

Workload in_open_loop(Workload workload, double rps) {
  return [workload = std::move(workload), rps](uint64_t seed) {
    std::vector<Asked> asked = workload(seed);
    arrive(asked, rps, seed);
    return asked;
  };
}

}  // namespace fathom::lab::engine_session
