// Admission that follows a target for the time to the first token: as many requests at once as keep its P95
// below the target. Others are refused at once, which is a better answer than one that comes too late.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/generator.h"

namespace fathom::serve {

// The limit, from measured latencies: additive increase, multiplicative decrease, as TCP's window. Not safe
// from several threads at once.
class SloLimit {
 public:
  struct Options {
    double target_s   = 1;
    double percentile = 95;
    int64_t first = 8, most = 4096;  // requests at once
    int64_t samples = 16;            // from which the percentile is taken, for each change
  };
  explicit SloLimit(const Options& options) : options_(options), limit_(options.first) {}

  int64_t limit() const { return limit_; }
  // A request was admitted while so many ran; its latency is told with what this returns.
  int64_t admitted(int64_t running);
  // A latency of a request that was admitted under an earlier limit says nothing about this one.
  void latency(double seconds, int64_t admitted);
  double last_percentile_s() const { return percentile_s_; }  // 0 before the first
  int64_t violations() const { return violations_; }          // percentiles above the target

 private:
  const Options options_;
  int64_t limit_;
  int64_t epoch_ = 0, violations_ = 0;
  bool reached_        = false;  // the limit, since it changed
  bool grows_fast_     = true;   // no violation yet: twice as many each time
  double percentile_s_ = 0;
  std::vector<double> latencies_;
};

struct SloStats {
  int64_t limit = 0, running = 0, refused = 0, violations = 0;
  double percentile_s = 0;
};

// Any generator behind such a limit. A request beyond it is refused as by a full queue: 429, with
// Retry-After.
class SloAdmission : public engine::Generator {
 public:
  // `generator` must outlive it.
  SloAdmission(engine::Generator& generator, const SloLimit::Options& options);

  std::variant<engine::RequestId, engine::Refusal> submit(engine::Request request,
                                                          engine::Listener listener) override;
  void cancel(engine::RequestId id, engine::FinishReason reason = engine::FinishReason::cancelled) override {
    generator_.cancel(id, reason);
  }
  engine::GeneratorStats stats() const override { return generator_.stats(); }
  int64_t max_context() const override { return generator_.max_context(); }
  bool drain(std::chrono::nanoseconds timeout) override { return generator_.drain(timeout); }

  SloStats slo_stats() const;

 private:
  // Listeners share it, since they may be called while this is destroyed.
  struct State {
    explicit State(const SloLimit::Options& options) : limit(options) {}
    std::mutex mutex;
    SloLimit limit;
    int64_t running = 0, refused = 0;
  };

  engine::Generator& generator_;
  const double target_s_;
  const std::shared_ptr<State> state_;
};

}  // namespace fathom::serve
