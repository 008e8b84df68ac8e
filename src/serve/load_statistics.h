// What a load test measured, by the definitions of `vllm bench serve`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"

namespace fathom::serve {

// One request as its client saw it. Times are seconds since the run's start.
struct RequestRecord {
  enum class State { unsent, unfinished, completed, failed };
  State state        = State::unsent;
  double scheduled_s = 0;         // when the arrival process wanted it out
  double sent_s      = 0;         // later by the wait for a slot of max_concurrency
  double ended_s     = 0;         // the last byte
  std::vector<double> content_s;  // when each chunk with content came
  int64_t input_tokens = 0, output_tokens = 0;
  std::string error;  // of State::failed

  double ttft_s() const;  // the first chunk with content - send; 0 where none came
  double e2el_s() const { return ended_s - sent_s; }
  // (E2EL - TTFT) / (output tokens - 1); none for answers of at most one token.
  std::optional<double> tpot_s() const;
};

// Limits that a good request keeps, all that are set.
struct LatencyGoals {
  std::optional<double> ttft_s, tpot_s, e2el_s;
  bool any() const { return ttft_s || tpot_s || e2el_s; }
};
// Of {"ttft:200", "tpot:50", "e2el:5000"}, milliseconds.
Result<LatencyGoals> parse_goals(std::span<const std::string> texts);

// Samples, sorted. Of an empty one nothing is known: no value.
class Distribution {
 public:
  Distribution() = default;
  explicit Distribution(std::vector<double> samples);

  int64_t count() const { return static_cast<int64_t>(sorted_.size()); }
  std::optional<double> mean() const;
  std::optional<double> deviation() const;           // of the samples themselves: divided by n, as numpy does
  std::optional<double> percentile(double p) const;  // 0 <= p <= 100, linear between samples, as numpy does
  std::optional<double> median() const { return percentile(50); }

 private:
  std::vector<double> sorted_;
};

struct LoadSummary {
  double duration_s = 0;
  int64_t completed = 0, failed = 0, unfinished = 0;  // unfinished: cut short by the user, or never sent
  int64_t input_tokens = 0, output_tokens = 0;        // of completed requests, as everything below
  double request_throughput = 0, output_throughput = 0, total_token_throughput = 0;  // per second
  std::optional<double> request_goodput;  // requests per second that kept the goals, where there are any

  // Most tokens in one of the seconds that follow the first send. The tokens of a request are spread evenly
  // over its chunks; vLLM counts one a chunk, which is the same where a chunk is a token.
  double peak_output_throughput = 0;
  int64_t peak_concurrency      = 0;

  // Seconds. ITL: every gap between two chunks of an answer, over all answers. Client queue: sent -
  // scheduled.
  Distribution ttft, tpot, itl, e2el, client_queue;

  std::string first_error;                // of the request that failed first
  std::map<std::string, int64_t> errors;  // how often each
};

LoadSummary summarize(std::span<const RequestRecord> requests, double duration_s,
                      const LatencyGoals& goals = {});

}  // namespace fathom::serve
