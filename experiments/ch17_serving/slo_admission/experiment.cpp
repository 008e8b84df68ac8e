// More requests come than can be answered in time. A fixed bound on the queue turns some away, but which
// bound is right depends on the machine, the model and the load. Can the measured latency choose it?
#include <algorithm>
#include <memory>

#include "experiments/engine_session.h"
#include "serve/slo_admission.h"

namespace fathom::lab::slo_admission {

using namespace engine_session;

// What fits in the queue is a guess of somebody who has not measured.
engine::EngineConfig bounded() {
  engine::EngineConfig config;
  config.max_context         = 512;
  config.max_sequences       = 16;
  config.kv_tokens           = 16 * 512;
  config.max_queued_requests = 32;
  return config;
}

// This machine's capacity: requests a second at saturation, and the time of a request that runs alone.
struct Scale {
  double rps, alone_s;
};
const Scale& scale() {
  static const Scale scale = [] {
    auto unbounded                = bounded();
    unbounded.max_queued_requests = 512;
    auto one_at_a_time            = unbounded;
    one_at_a_time.max_sequences   = 1;
    const double rps              = saturation_rps(engine_of(unbounded), short_answers(64));
    return Scale{rps, 1 / saturation_rps(engine_of(one_at_a_time), short_answers(16))};
  }();
  return scale;
}

// For the first token: three times what a whole answer takes alone.
double target_s() { return 3 * scale().alone_s; }

struct Owned {
  std::unique_ptr<engine::Generator> engine;
};
class SloDriven final : Owned, public serve::SloAdmission {
 public:
  explicit SloDriven(std::unique_ptr<engine::Generator> owned)
      : Owned{std::move(owned)}, SloAdmission(*engine, {.target_s = target_s()}) {}
};

Start fixed_bound() { return engine_of(bounded()); }
Start slo_driven() {
  return [] { return std::make_unique<SloDriven>(fixed_bound()()); };
}

// A good request has its first token within the target. If none has, half a request counts, so that there is
// a time to compare.
void report(const Seen& seen, Metrics& metrics) {
  double good = 0;
  for (const load::RequestRecord& request : seen.requests)
    good += !request.content_s.empty() && request.ttft_s() <= target_s();
  const auto refused = std::count_if(seen.requests.begin(), seen.requests.end(), [](const auto& request) {
    return request.state == load::RequestRecord::State::failed;
  });
  const auto asked   = static_cast<double>(seen.asked.size());
  metrics["ns_per_good_request"] = {1e9 * seen.summary.duration_s / std::max(good, 0.5), "lower"};
  metrics["slo_attainment"]      = {good / asked, "higher"};
  metrics["kept_promises"]       = {good / std::max(asked - static_cast<double>(refused), 1.0), "higher"};
  metrics["turned_away"]         = {static_cast<double>(refused), "lower"};
  metrics["ttft_target_ns"]      = {1e9 * target_s(), "lower"};
}

auto starts(const Start& start) {
  return [start](const Point& at) {
    const double rps = scale().rps * static_cast<double>(at["load_percent"]) / 100;
    return replay_on(start, in_open_loop(short_answers(at["requests"]), rps), report);
  };
}

const Experiment<Session> experiment{
    .question =
        "Of requests that arrive at random, how many get their first token in time if admission follows the "
        "measured P95, and how many with a fixed bound of the queue?",
    .axes  = {{"load_percent", {150, 70}}, {"requests", {384}}},
    .quick = {{"requests", {96}}},
    .variants =
        {
            {.id         = "fixed_bound",
             .start      = starts(fixed_bound()),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "latency_percentiles"},
             .idea       = "16 running, 32 waiting; further requests are refused",
             .may_refuse = true},
            {.id         = "slo_driven",
             .start      = starts(slo_driven()),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "latency_percentiles",
                            "slo_scheduling"},
             .idea       = "as many at once as keep the P95 of the first token within the target",
             .prediction = predict::ratio_at_least(1.3),
             .may_refuse = true},
        },
    .catalog = {"serving-005"},
    .goal    = "ns_per_good_request",
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::slo_admission
