// The router's rules for where a prompt is computed: by the decode worker that writes the answer, or by the
// prefill pool. They look at the prompt's length and at the load of both pools. Not safe from several threads
// at once.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace fathom::serve {

class DynamicRouting {
 public:
  struct Options {
    // Longer prompts, in tokens that no cache of the decode worker holds, go to the prefill pool (Dynamo's
    // max_local_prefill_length).
    int64_t max_local_prefill_length = 4096;
    // A pool is busy from `max_utilization` on until it is below `min_utilization` again: two thresholds,
    // lest requests go to and fro.
    double max_utilization = 0.8, min_utilization = 0.6;
    // Shorter ones never go: to move the blocks would cost more than to compute them.
    int64_t min_remote_prefill_length = 256;
  };
  // Mean utilisations of the workers that can take requests, 0 to 1.
  struct Pools {
    int64_t prefill_workers = 0;
    double prefill = 0, decode = 0;
  };
  enum class Decision { local_short, local_no_prefill, local_prefill_busy, remote_long, remote_decode_busy };
  static constexpr std::array<std::string_view, 5> kDecisionNames = {
      "local_short", "local_no_prefill_worker", "local_prefill_busy", "remote_long", "remote_decode_busy"};
  static bool remote(Decision decision) { return decision >= Decision::remote_long; }

  explicit DynamicRouting(const Options& options) : options_(options) {}

  // In the order in which the loads were observed: what is busy is remembered.
  Decision decide(int64_t uncached_tokens, const Pools& pools);

 private:
  void update(bool& busy, double utilization) const;

  const Options options_;
  bool prefill_busy_ = false, decode_busy_ = false;
};

}  // namespace fathom::serve
