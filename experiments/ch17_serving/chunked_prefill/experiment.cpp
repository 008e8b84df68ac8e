// While a long prompt is prefilled, no other request gets a token. How long is the worst gap between tokens,
// and what does chunked prefill cost?
#include "experiments/engine_session.h"

namespace fathom::lab::chunked_prefill {

using namespace engine_session;

constexpr int kAnswering = 6, kLong = 4;

engine::EngineConfig whole() {
  engine::EngineConfig config;
  config.max_context     = 2048;
  config.kv_tokens       = 16384;
  config.prefix_cache    = false;  // no two prompts share a prefix
  config.chunked_prefill = false;
  return config;
}

engine::EngineConfig pieces(int64_t rows) {
  auto config            = whole();
  config.chunked_prefill = true;
  config.step_tokens     = rows;
  return config;
}

// Six long answers, and four long prompts that arrive while these are generated.
Workload workload(int64_t shots) {
  const Workload together = [=](uint64_t seed) {
    std::vector<Asked> asked;
    for (uint64_t i = 0; i < kAnswering + kLong; ++i) {
      const bool is_long = i >= kAnswering;
      asked.push_back(
          {.prompt = prompt_of({.seed = seed, .index = i, .shots = is_long ? shots : 0, .about = seed + i}),
           .max_tokens = is_long ? 8 : 192,
           .exactly    = true,
           .apart      = is_long});
    }
    return asked;
  };
  static const double whole_s =
      static_cast<double>(kAnswering + kLong) / saturation_rps(engine_of(whole()), together);
  return [=](uint64_t seed) {
    std::vector<Asked> asked = together(seed);
    for (int i = 0; i < kLong; ++i)
      asked[static_cast<size_t>(kAnswering + i)].at_s = whole_s * (0.1 + 0.2 * i);
    return asked;
  };
}

void report(const Seen& seen, Metrics& metrics) {
  double worst_s = 0;
  std::vector<double> first_s;
  for (size_t i = 0; i < seen.requests.size(); ++i) {
    const auto& tokens_s = seen.requests[i].content_s;
    if (seen.asked[i].apart) {
      first_s.push_back(seen.requests[i].ttft_s());
      continue;
    }
    for (size_t t = 1; t < tokens_s.size(); ++t) worst_s = std::max(worst_s, tokens_s[t] - tokens_s[t - 1]);
  }
  metrics["worst_gap_ns"]    = {1e9 * worst_s, "lower"};
  metrics["ttft_of_long_ns"] = {1e9 * *load::Distribution(first_s).median(), "lower"};
  metrics["duration_ns"]     = {1e9 * seen.summary.duration_s, "lower"};
}

auto starts(const engine::EngineConfig& config) {
  return [config](const Point& at) { return replay_on(engine_of(config), workload(at["shots"]), report); };
}

const Experiment<Session> experiment{
    .question =
        "Six answers are being generated when prompts of 900 tokens arrive: what is the worst gap between "
        "two "
        "tokens, and what does a bound on it cost?",
    .axes = {{"shots", {30}}},
    .variants =
        {
            {.id         = "whole",
             .start      = starts(whole()),
             .techniques = {"continuous_batching", "paged_kv"},
             .idea       = "a prompt is prefilled in one step"},
            {.id         = "pieces_256",
             .start      = starts(pieces(256)),
             .techniques = {"continuous_batching", "paged_kv", "chunked_prefill"},
             .idea       = "chunks: at most 256 rows a step, decodes first",
             .prediction = predict::ratio(3)},
            {.id         = "pieces_64",
             .start      = starts(pieces(64)),
             .techniques = {"continuous_batching", "paged_kv", "chunked_prefill"},
             .idea       = "at most 64 rows a step",
             .prediction = predict::ratio_at_least(8)},
        },
    .catalog = {"serving-007"},
    .goal    = "worst_gap_ns",
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::chunked_prefill
