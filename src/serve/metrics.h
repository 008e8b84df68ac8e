// What the server says about itself to Prometheus (text format 0.0.4): under names of our own, `fathom_...`,
// and again under vLLM's where it has one (specs/serving.md section 2), so that its dashboards and
// autoscalers work. Times are in seconds, memory in pages, prefixes in tokens.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/generator.h"
#include "serve/http_server.h"

namespace fathom::serve {

// Upper bounds of the buckets of latencies between tokens, in seconds: vLLM's, which begin at 10 ms, and
// finer ones below.
inline constexpr std::array<double, 31> kTokenGapBounds = {
    .0001, .0002, .0003, .0005, .00075, .001, .0015, .002, .003, .004, .005, .0075, .01, .025, .05, .075,
    .1,    .15,   .2,    .3,    .4,     .5,   .75,   1,    2.5,  5,    7.5,  10,    20,  40,   80};

// The gaps between the tokens of one sequence, kept beside it while it is written, so that its tokens need no
// lock. Used by one thread at a time.
class TokenGaps {
 public:
  // New tokens came at `now`; several at once, from drafts, are one arrival. The first has no gap before it.
  void arrived(engine::TimePoint now);

  int64_t sum_ns() const { return sum_ns_; }
  // By bucket of kTokenGapBounds, not cumulative; the last counts what is beyond all bounds.
  const std::array<uint32_t, kTokenGapBounds.size() + 1>& counts() const { return counts_; }

 private:
  std::optional<engine::TimePoint> last_;
  int64_t sum_ns_ = 0;
  std::array<uint32_t, kTokenGapBounds.size() + 1> counts_{};
};

// One sequence that has ended, whatever way: one engine::Request.
struct FinishedRequest {
  engine::RequestTimes times;
  int64_t prompt_tokens = 0, cached_tokens = 0;  // cached: of the prompt, that were not computed anew
  int64_t generated_tokens = 0;
  int64_t max_tokens       = 0;   // that it asked for
  TokenGaps gaps           = {};  // empty where nobody watched its tokens come
};

// Counts what happens, from any thread, and tells of it.
//
// Requests are in one of two sets. Those that brought a token are in all of the histograms of queue, prefill,
// decode, inference, end to end and first token, and thus in each text, for their sums to the nanosecond:
// end to end = queue + inference; inference = prefill + decode. Those that ended before (cancelled, failed)
// had no prefill or decode to speak of and would read as fast ones; they are only in
// fathom_request_abandoned_seconds{phase}, the time from their arrival to their end.
class ServeMetrics {
 public:
  struct Model {
    std::string name;          // the label model_name
    int64_t max_context  = 0;  // tokens; ends the buckets of token counts
    int64_t page_tokens  = 0;  // tokens in a page of the KV cache
    bool shares_prefixes = false;
  };

  // `http` is asked at each text(); without it there is nothing of connections.
  explicit ServeMetrics(Model model, std::function<HttpServerStats()> http = {});
  ~ServeMetrics();

  void finished(const FinishedRequest& request);
  // A call of the API has its last choice: it asked for `choices`, and the longest has that many tokens.
  void answered(int64_t choices, int64_t longest_tokens);

  // An answer's head was sent. `route` is the path that was asked for; those that are not ours count as
  // "other", so that a client cannot make up series.
  void responded(std::string_view route, int status);
  void client_disconnected();  // before its answer was whole

  // Half of the requests in time_to_first_token_seconds were faster than this: between the bounds of a
  // bucket, by its share; none before the first request.
  std::optional<double> median_time_to_first_token_s() const;

  // Everything, for GET /metrics. The engine's counters are those of `stats`: they must count a prompt's
  // tokens, queries and hits in one step and once an admission.
  std::string text(const engine::GeneratorStats& stats) const;

  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom::serve
