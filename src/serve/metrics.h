// Prometheus metrics (text format 0.0.4), under our names, `fathom_...`, and again under vLLM's where it has
// one (https://docs.vllm.ai, "Production Metrics"), so that dashboards and autoscalers for vLLM work; of GPUs
// under the DCGM exporter's (device_series.h). Times are in seconds, memory in pages, prefixes in tokens.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/generator.h"
#include "http/server.h"
#include "machine/rapl.h"
#include "serve/gpu_monitor.h"
#include "serve/kv_connector_stats.h"
#include "serve/router_stats.h"
#include "serve/slo_admission.h"

namespace fathom::serve {

// Upper bucket bounds of latencies between tokens, in seconds: vLLM's, which begin at 10 ms, and finer ones
// below.
inline constexpr std::array<double, 31> kTokenGapBounds = {
    .0001, .0002, .0003, .0005, .00075, .001, .0015, .002, .003, .004, .005, .0075, .01, .025, .05, .075,
    .1,    .15,   .2,    .3,    .4,     .5,   .75,   1,    2.5,  5,    7.5,  10,    20,  40,   80};

// The gaps between the tokens of one sequence. Each sequence keeps its own while it runs, so its tokens need
// no lock. Used by one thread at a time.
class TokenGaps {
 public:
  // New tokens arrived at `now`; several at once (drafts) are one arrival. The first arrival has no gap.
  void arrived(engine::TimePoint now);

  int64_t sum_ns() const { return sum_ns_; }
  // By bucket of kTokenGapBounds, not cumulative. The last bucket is above all bounds.
  const std::array<uint32_t, kTokenGapBounds.size() + 1>& counts() const { return counts_; }

 private:
  std::optional<engine::TimePoint> last_;
  int64_t sum_ns_ = 0;
  std::array<uint32_t, kTokenGapBounds.size() + 1> counts_{};
};

// One sequence (engine::Request) that has ended, for any reason.
struct FinishedRequest {
  engine::RequestTimes times;
  // Cached: prompt tokens that were not computed again.
  int64_t prompt_tokens = 0, cached_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t max_tokens       = 0;   // its limit
  TokenGaps gaps           = {};  // empty where its tokens were not observed
};

// Counts events, from any thread, and exports them.
//
// A request is in one of two sets. A request with at least one token is in all histograms of queue, prefill,
// decode, inference, end-to-end and first-token time, in every export, so their sums agree to the nanosecond:
// end to end = queue + inference, inference = prefill + decode. A request that ended before its first token
// (cancelled, failed) has no prefill or decode time and would look fast; it is only in
// fathom_request_abandoned_seconds{phase}, the time from its arrival to its end.
class ServeMetrics {
 public:
  struct Model {
    std::string name;          // the label model_name
    int64_t max_context  = 0;  // tokens; the last bucket bound of token counts
    int64_t page_tokens  = 0;  // tokens in a page of the KV cache
    bool shares_prefixes = false;
  };

  // Called for each export; what is null exports nothing.
  struct Sources {
    std::function<http::ServerStats()> http                     = {};  // connections
    std::function<RouterStats()> router                         = {};
    std::function<SloStats()> slo                               = {};  // SLO-driven admission
    std::function<KvConnectorStats()> kv_connector              = {};
    std::function<std::vector<machine::CpuEnergy>()> cpu_energy = {};
  };

  explicit ServeMetrics(Model model) : ServeMetrics(std::move(model), Sources()) {}
  ServeMetrics(Model model, Sources sources);
  ~ServeMetrics();

  void finished(const FinishedRequest& request);
  // The last choice of an API request has ended. `longest_tokens` is the length of its longest choice.
  void answered(int64_t choices, int64_t longest_tokens);

  // A response's head was sent. `route` is the requested path; unknown paths count as "other", so that
  // clients cannot create series.
  void responded(std::string_view route, int status);
  void client_disconnected();  // before the response was complete

  // The median of time_to_first_token_seconds, interpolated within its bucket; none before the first request.
  std::optional<double> median_time_to_first_token_s() const;

  // The whole export, for GET /metrics. The engine's counters come from `stats`, which must count a prompt's
  // tokens, queries and hits in one step and once for each admission. `gpus`: null where none are watched.
  std::string text(const engine::GeneratorStats& stats, const GpuMonitor::Scrape* gpus = nullptr) const;

  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom::serve
