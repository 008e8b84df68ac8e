// The measurements of a load test, as `vllm bench serve` defines them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"

namespace fathom::load {

// One request as the client saw it. Times are seconds since the start of the run.
struct RequestRecord {
  enum class State { unsent, unfinished, completed, failed };
  State state        = State::unsent;
  double scheduled_s = 0;         // due by the arrival process
  double sent_s      = 0;         // later than scheduled_s by the wait for a slot of max_concurrency
  double ended_s     = 0;         // at the last byte
  std::vector<double> content_s;  // arrival times of the chunks with content
  int64_t input_tokens = 0, output_tokens = 0;
  std::string error;  // of State::failed

  double ttft_s() const;  // first chunk with content - send; 0 where none came
  double e2el_s() const { return ended_s - sent_s; }
  // (E2EL - TTFT) / (output tokens - 1); none for a response of at most one token.
  std::optional<double> tpot_s() const;
};

// The limits of a good request (goodput). A request must keep all that are set.
struct LatencyGoals {
  std::optional<double> ttft_s, tpot_s, e2el_s;
  bool any() const { return ttft_s || tpot_s || e2el_s; }
};
// Parses {"ttft:200", "tpot:50", "e2el:5000"}, in milliseconds.
Result<LatencyGoals> parse_goals(std::span<const std::string> texts);

// Sorted samples. Statistics of no samples have no value.
class Distribution {
 public:
  Distribution() = default;
  explicit Distribution(std::vector<double> samples);

  int64_t count() const { return static_cast<int64_t>(sorted_.size()); }
  std::optional<double> mean() const;
  std::optional<double> deviation() const;           // population standard deviation (divides by n), as numpy
  std::optional<double> percentile(double p) const;  // 0 <= p <= 100, linear between samples, as numpy
  std::optional<double> median() const { return percentile(50); }

 private:
  std::vector<double> sorted_;
};

struct Summary {
  double duration_s = 0;
  // Unfinished: stopped by the user, or never sent.
  int64_t completed = 0, failed = 0, unfinished = 0;
  // Of completed requests, as everything below.
  int64_t input_tokens = 0, output_tokens = 0;
  double request_throughput = 0, output_throughput = 0, total_token_throughput = 0;  // per second
  // Requests per second that kept the goals; none without goals.
  std::optional<double> request_goodput;

  // The most tokens in any one-second bucket, counted from the first send. A request's tokens are spread
  // evenly over its chunks; vLLM counts one token a chunk, which is the same where a chunk is a token.
  double peak_output_throughput = 0;
  int64_t peak_concurrency      = 0;

  // Seconds. ITL: every gap between two chunks of a response, over all responses. Client queue: sent_s -
  // scheduled_s.
  Distribution ttft, tpot, itl, e2el, client_queue;

  std::string first_error;                // of the earliest failure
  std::map<std::string, int64_t> errors;  // counts by message
};

Summary summarize(std::span<const RequestRecord> requests, double duration_s, const LatencyGoals& goals = {});

}  // namespace fathom::load
