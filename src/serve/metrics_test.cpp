#include "serve/metrics.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "core/expect.h"

namespace fathom::serve {
namespace {

using engine::GeneratorStats;
using engine::TimePoint;
using std::chrono::nanoseconds;

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == ':';
  }) && !std::isdigit(static_cast<unsigned char>(text[0]));
}

// Parses an export by the grammar of the format, independently of our code: values by name and labels. Fails
// the test where a line breaks the grammar, or a family is declared twice or after its samples.
struct Scrape {
  std::map<std::string, double> samples;
  std::map<std::string, std::string> types;
  std::map<std::string, std::vector<std::string>> bounds;  // the `le` of a histogram, in order

  explicit Scrape(const std::string& text) {
    EXPECT_TRUE(text.empty() || text.back() == '\n');
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const bool read = line.starts_with("# ") ? read_comment(line) : read_sample(line);
      EXPECT_TRUE(read) << "not of the format: " << line;
    }
  }

  bool read_comment(const std::string& line) {
    std::istringstream words(line);
    std::string hash, what, name, type;
    words >> hash >> what >> name >> type;
    if (!is_name(name) || type.empty() || (what != "HELP" && what != "TYPE")) return false;
    if (what == "HELP") return true;
    EXPECT_TRUE(types.emplace(name, type).second) << "twice: " << line;
    return type == "counter" || type == "gauge" || type == "histogram";
  }

  bool read_sample(const std::string& line) {
    size_t at              = line.find_first_of("{ ");
    const std::string name = line.substr(0, at);
    std::string family     = name;
    for (const char* part : {"_bucket", "_sum", "_count"})
      if (name.ends_with(part)) family = name.substr(0, name.size() - std::strlen(part));
    if (at == std::string::npos || !is_name(name)) return false;
    EXPECT_TRUE(types.contains(name) || types.contains(family)) << "before its type: " << line;
    while (line[at] == '{' || line[at] == ',') {
      const size_t equals = line.find("=\"", at);
      if (equals == std::string::npos || !is_name(line.substr(at + 1, equals - at - 1))) return false;
      size_t end = equals + 2;
      for (; end < line.size() && line[end] != '"'; ++end)
        if (line[end] == '\\' && !std::strchr("\\\"n", line[++end])) return false;
      if (line.compare(at + 1, equals - at - 1, "le") == 0)
        bounds[family].push_back(line.substr(equals + 2, end - equals - 2));
      at = end + 1;
      if (at >= line.size()) return false;
      if (line[at] == '}' && line[++at] == ' ') break;
    }
    const char* number = line.c_str() + at + 1;
    char* end          = nullptr;
    const double value = std::strtod(number, &end);
    EXPECT_TRUE(samples.emplace(line.substr(0, at), value).second) << "twice: " << line;
    return line[at] == ' ' && end != number && *end == '\0';
  }

  double at(const std::string& name) const {
    const auto found = samples.find(name);
    if (found != samples.end()) return found->second;
    ADD_FAILURE() << "no sample " << name;
    return std::numeric_limits<double>::quiet_NaN();
  }
};

constexpr std::string_view kLabels = R"({model_name="tiny",engine="0"})";

std::string with(std::string_view name, std::string_view label = {}) {
  std::string text = fmt::format("{}{}", name, kLabels);
  if (!label.empty()) text.insert(text.size() - 1, fmt::format(",{}", label));
  return text;
}

ServeMetrics::Model tiny() { return {.name = "tiny", .max_context = 4096, .page_tokens = 16}; }

TimePoint at_ns(int64_t ns) { return TimePoint(nanoseconds(ns)); }

// A request that arrives at `start` and then spends these times in its phases.
FinishedRequest request_of(int64_t start, int64_t queue, int64_t prefill, int64_t decode,
                           int64_t tokens = 2) {
  return {.times            = {.received    = at_ns(start),
                               .scheduled   = at_ns(start + queue),
                               .first_token = at_ns(start + queue + prefill),
                               .finished    = at_ns(start + queue + prefill + decode)},
          .prompt_tokens    = 7,
          .generated_tokens = tokens,
          .max_tokens       = 16};
}

// Latencies spread over ten decades.
int64_t some_ns(std::mt19937_64& random) {
  return static_cast<int64_t>(std::pow(10., std::uniform_real_distribution<>(0, 11)(random)));
}

int64_t sum_ns(const Scrape& scrape, std::string_view histogram) {
  return std::llround(scrape.at(with(fmt::format("{}_sum", histogram))) * 1e9);
}

double count(const Scrape& scrape, std::string_view histogram) {
  return scrape.at(with(fmt::format("{}_count", histogram)));
}

const char* const kPhases[] = {"queue", "prefill", "decode", "inference"};

void expect_identities(const Scrape& scrape) {
  EXPECT_EQ(sum_ns(scrape, "vllm:e2e_request_latency_seconds"),
            sum_ns(scrape, "vllm:request_queue_time_seconds") +
                sum_ns(scrape, "vllm:request_inference_time_seconds"));
  EXPECT_EQ(sum_ns(scrape, "vllm:request_inference_time_seconds"),
            sum_ns(scrape, "vllm:request_prefill_time_seconds") +
                sum_ns(scrape, "vllm:request_decode_time_seconds"));
  EXPECT_EQ(sum_ns(scrape, "vllm:time_to_first_token_seconds"),
            sum_ns(scrape, "vllm:request_queue_time_seconds") +
                sum_ns(scrape, "vllm:request_prefill_time_seconds"));
  for (const char* phase : kPhases)
    EXPECT_EQ(count(scrape, fmt::format("vllm:request_{}_time_seconds", phase)),
              count(scrape, "vllm:e2e_request_latency_seconds"));
  double sources = 0;
  for (const char* source : {"local_compute", "local_cache_hit", "external_kv_transfer"})
    sources += scrape.at(with("vllm:prompt_tokens_by_source_total", fmt::format("source=\"{}\"", source)));
  EXPECT_EQ(sources, scrape.at(with("vllm:prompt_tokens_total")));
}

TEST(ServeMetrics, IdentitiesHoldToTheNanosecond) {
  std::mt19937_64 random(1);
  ServeMetrics metrics(tiny());
  std::map<std::string, int64_t> sums;
  for (int i = 1; i <= 3000; ++i) {
    const int64_t queue = some_ns(random), prefill = some_ns(random), decode = some_ns(random);
    const int64_t tokens = static_cast<int64_t>(random() % 3);
    metrics.finished(request_of(some_ns(random), queue, prefill, decode, tokens));
    if (tokens > 0) {
      sums["queue"] += queue;
      sums["prefill"] += prefill;
      sums["decode"] += decode;
      sums["inference"] += prefill + decode;
    }
    if (i % 1000 != 0) continue;
    const Scrape scrape(metrics.text({.prompt_tokens = 5 * i, .prefix_hit_tokens = i}));
    expect_identities(scrape);
    for (const auto& [phase, sum] : sums)
      EXPECT_EQ(sum_ns(scrape, fmt::format("vllm:request_{}_time_seconds", phase)), sum) << phase;
  }
}

TEST(ServeMetrics, EveryScrapeSeesAllOfARequestOrNothing) {
  ServeMetrics metrics(tiny());
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<uint64_t>(t));
      for (int i = 0; i < 2000; ++i) {
        metrics.finished(request_of(0, some_ns(random), some_ns(random), some_ns(random)));
        metrics.responded("/health", 200);
      }
    });
  for (int i = 0; i < 20; ++i) expect_identities(Scrape(metrics.text({})));
  for (std::thread& thread : threads) thread.join();
  const Scrape scrape(metrics.text({}));
  expect_identities(scrape);
  EXPECT_EQ(count(scrape, "vllm:e2e_request_latency_seconds"), 6000);
  EXPECT_EQ(scrape.at(with("fathom_http_responses_total", R"(route="/health",status="2xx")")), 6000);
}

TEST(ServeMetrics, ConnectionsAreThoseOfTheServerAtThisMoment) {
  http::ServerStats http{.connections = 3, .accepted = 10, .refused = 2, .dropped_stalled = 1};
  ServeMetrics metrics(tiny(), {.http = [&] { return http; }});
  EXPECT_EQ(Scrape(metrics.text({})).at(with("fathom_http_connections")), 3);
  http.connections = 1;
  const Scrape scrape(metrics.text({}));
  EXPECT_EQ(scrape.at(with("fathom_http_connections")), 1);
  EXPECT_EQ(scrape.at(with("fathom_http_connections_accepted_total")), 10);
  EXPECT_EQ(scrape.at(with("fathom_http_connections_refused_total")), 2);
  EXPECT_EQ(scrape.at(with("fathom_http_connections_stalled_total")), 1);
}

TEST(ServeMetrics, BucketsCountWhatIsNotAboveThem) {
  std::mt19937_64 random(2);
  ServeMetrics metrics(tiny());
  std::vector<int64_t> waits = {0,         1,           100'000,     100'001,
                                1'000'000, 300'000'000, 300'000'001, 7'680'000'000'000};
  for (int i = 0; i < 500; ++i) waits.push_back(some_ns(random));
  for (const int64_t wait : waits) metrics.finished(request_of(0, wait, 0, 0));

  const Scrape scrape(metrics.text({}));
  const auto& bounds = scrape.bounds.at("vllm:request_queue_time_seconds");
  ASSERT_EQ(bounds.back(), "+Inf");
  for (const std::string& bound : bounds) {
    // Compares integers: every bound is a whole number of nanoseconds.
    const int64_t limit =
        bound == "+Inf" ? std::numeric_limits<int64_t>::max() : std::llround(std::stod(bound) * 1e9);
    const auto below = std::count_if(waits.begin(), waits.end(), [&](int64_t wait) { return wait <= limit; });
    EXPECT_EQ(scrape.at(with("vllm:request_queue_time_seconds_bucket", fmt::format("le=\"{}\"", bound))),
              below)
        << bound;
  }
}

// A request cancelled in the queue would otherwise count as the fastest prefill.
TEST(ServeMetrics, RequestsWithoutATokenAreKeptApart) {
  ServeMetrics metrics(tiny());
  metrics.finished(request_of(10, 40, 0, 0, 0));     // left in the queue
  metrics.finished(request_of(10, 40, 0, 5000, 0));  // failed during prefill
  // Also during prefill.
  metrics.finished({.times = {at_ns(0), at_ns(30), at_ns(90), at_ns(90)}, .prompt_tokens = 7});
  const Scrape before(metrics.text({}));
  for (const auto& [name, value] : before.samples) {
    const bool histogram =
        name.find("_count") != std::string::npos || name.find("_sum{") != std::string::npos;
    if (histogram && name.find("abandoned") == std::string::npos) {
      EXPECT_EQ(value, 0) << name;
    }
  }
  EXPECT_EQ(before.at(with("fathom_request_abandoned_seconds_count", R"(phase="queue")")), 1);
  EXPECT_DOUBLE_EQ(before.at(with("fathom_request_abandoned_seconds_sum", R"(phase="queue")")), 40e-9);
  EXPECT_EQ(before.at(with("fathom_request_abandoned_seconds_count", R"(phase="prefill")")), 2);
  EXPECT_DOUBLE_EQ(before.at(with("fathom_request_abandoned_seconds_sum", R"(phase="prefill")")), 5130e-9);

  // One token, which ended the request: it has all phases, but no time per output token.
  metrics.finished(
      {.times = {at_ns(0), at_ns(30), at_ns(90), at_ns(90)}, .prompt_tokens = 7, .generated_tokens = 1});
  const Scrape after(metrics.text({}));
  expect_identities(after);
  EXPECT_EQ(count(after, "vllm:request_decode_time_seconds"), 1);
  EXPECT_EQ(count(after, "vllm:request_time_per_output_token_seconds"), 0);
}

TEST(ServeMetrics, TimePerOutputTokenLeavesOutTheFirst) {
  ServeMetrics metrics(tiny());
  metrics.finished(request_of(0, 1, 2, 900'000, 10));
  const Scrape scrape(metrics.text({}));
  EXPECT_EQ(sum_ns(scrape, "vllm:request_time_per_output_token_seconds"), 100'000);
  EXPECT_EQ(scrape.at(with("fathom_time_per_output_token_seconds_bucket", R"(le="0.0001")")), 1);
}

TEST(ServeMetrics, GapsAreBetweenArrivals) {
  std::mt19937_64 random(3);
  ServeMetrics metrics(tiny());
  std::vector<int64_t> gaps;
  for (int sequence = 0; sequence < 20; ++sequence) {
    FinishedRequest request = request_of(0, 1, 2, 3);
    int64_t now             = some_ns(random);
    request.gaps.arrived(at_ns(now));
    for (int i = 0; i < sequence; ++i) {  // the first sequence has one arrival and no gap
      gaps.push_back(some_ns(random));
      request.gaps.arrived(at_ns(now += gaps.back()));
    }
    metrics.finished(request);
  }
  const Scrape scrape(metrics.text({}));
  EXPECT_EQ(count(scrape, "vllm:inter_token_latency_seconds"), static_cast<double>(gaps.size()));
  int64_t sum = 0;
  for (const int64_t gap : gaps) sum += gap;
  EXPECT_EQ(sum_ns(scrape, "vllm:inter_token_latency_seconds"), sum);
  const auto fast = std::count_if(gaps.begin(), gaps.end(), [](int64_t gap) { return gap <= 1'500'000; });
  EXPECT_EQ(scrape.at(with("vllm:inter_token_latency_seconds_bucket", R"(le="0.0015")")), fast);
}

// The names that vLLM dashboards use (https://docs.vllm.ai, "Production Metrics").
TEST(ServeMetrics, VllmNamesAndBuckets) {
  const std::vector<std::string> phase = {"0.3", "0.5", "0.8", "1",   "1.5", "2",    "2.5",
                                          "5",   "10",  "15",  "20",  "30",  "40",   "50",
                                          "60",  "120", "240", "480", "960", "1920", "7680"};
  const std::vector<std::string> token = {"0.01", "0.025", "0.05", "0.075", "0.1", "0.15", "0.2",
                                          "0.3",  "0.4",   "0.5",  "0.75",  "1",   "2.5",  "5",
                                          "7.5",  "10",    "20",   "40",    "80"};
  const std::vector<std::string> first = {"0.001", "0.005", "0.01", "0.02", "0.04", "0.06", "0.08", "0.1",
                                          "0.25",  "0.5",   "0.75", "1",    "2.5",  "5",    "7.5",  "10",
                                          "20",    "40",    "80",   "160",  "640",  "2560"};
  const std::vector<std::string> size  = {"1",   "2",   "5",   "10",   "20",  "50",
                                          "100", "200", "500", "1000", "2000"};
  const std::map<std::string, std::vector<std::string>> expected = {
      {"vllm:time_to_first_token_seconds", first},
      {"vllm:inter_token_latency_seconds", token},
      {"vllm:request_time_per_output_token_seconds", token},
      {"vllm:e2e_request_latency_seconds", phase},
      {"vllm:request_queue_time_seconds", phase},
      {"vllm:request_prefill_time_seconds", phase},
      {"vllm:request_decode_time_seconds", phase},
      {"vllm:request_inference_time_seconds", phase},
      {"vllm:request_prompt_tokens", size},
      {"vllm:request_generation_tokens", size},
      {"vllm:request_max_num_generation_tokens", size},
      {"vllm:request_params_max_tokens", size},
      {"vllm:request_prefill_kv_computed_tokens", size},
      {"vllm:request_params_n", {"1", "2", "5", "10", "20"}},
      {"vllm:iteration_tokens_total",
       {"1", "8", "16", "32", "64", "128", "256", "512", "1024", "2048", "4096", "8192", "16384"}}};

  const Scrape scrape(ServeMetrics(tiny()).text({}));
  for (const auto& [name, bounds] : expected) {
    ASSERT_TRUE(scrape.bounds.contains(name)) << name;
    const auto& ours = scrape.bounds.at(name);
    for (const std::string& bound : bounds)
      EXPECT_NE(std::find(ours.begin(), ours.end(), bound), ours.end()) << name << " " << bound;
    EXPECT_TRUE(std::is_sorted(ours.begin(), ours.end(),
                               [](const auto& a, const auto& b) { return std::stod(a) < std::stod(b); }));
    const auto fine =
        std::count_if(ours.begin(), ours.end(), [](const auto& b) { return std::stod(b) < .01; });
    if (name.find("_seconds") != std::string::npos) {
      EXPECT_GE(fine, 8) << name << ": too coarse below 10 ms";
    } else {
      EXPECT_EQ(ours.size(), bounds.size() + 1) << name;
    }
  }
  for (const char* name :
       {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
        "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:num_preemptions_total",
        "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:prompt_tokens_cached_total",
        "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_draft_tokens_total",
        "vllm:spec_decode_num_accepted_tokens_total"})
    EXPECT_EQ(scrape.at(with(name)), 0) << name;
  for (const char* reason : {"capacity", "deferred"})
    EXPECT_EQ(scrape.at(with("vllm:num_requests_waiting_by_reason", fmt::format("reason=\"{}\"", reason))),
              0);
  for (const char* reason : {"stop", "length", "abort", "error"})
    EXPECT_EQ(scrape.at(with("vllm:request_success_total", fmt::format("finished_reason=\"{}\"", reason))),
              0);
  EXPECT_EQ(scrape.at(with("vllm:spec_decode_num_accepted_tokens_per_pos_total", R"(position="15")")), 0);
}

TEST(ServeMetrics, ShowsTheEngine) {
  GeneratorStats stats{.running               = 3,
                       .waiting               = 5,
                       .waiting_tokens        = 700,
                       .pages                 = 400,
                       .pages_in_use          = 100,
                       .prompt_tokens         = 1000,
                       .generated_tokens      = 2000,
                       .prefix_queried_tokens = 900,
                       .prefix_hit_tokens     = 300,
                       .received_hit_tokens   = 120,
                       .preemptions           = 4,
                       .steps                 = 6,
                       .step_rows             = 20'075,
                       .admission_holds       = 31,
                       .held_steps            = 32,
                       .forgotten_pages       = 33,
                       .setting_changes       = 34,
                       .setting_s             = {1, 0, 2.5, 0},
                       .graph_fallbacks       = 7,
                       .drafts                = 11,
                       .drafted_tokens        = 44,
                       .accepted_tokens       = 22,
                       .forward_s             = 1.25,
                       .memory                = {.weights = 700, .kv_cache = 40, .workspace = 5},
                       .router_imbalance      = 1.5,
                       .rank_imbalance        = 1.25,
                       .eplb                  = engine::EplbStats{.plans_taken      = 41,
                                                                  .plans_refused    = 42,
                                                                  .experts_moved    = 43,
                                                                  .seconds          = .125,
                                                                  .mean_rank_tokens = 44.5,
                                                                  .max_rank_tokens  = 89,
                                                                  .balancedness     = .75}};
  stats.steps_by_rows                                     = {2, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2};
  stats.accepted_at[1]                                    = 9;
  stats.finished[size_t(engine::FinishReason::stop)]      = 8,
  stats.finished[size_t(engine::FinishReason::cancelled)] = 2;
  const Scrape scrape(ServeMetrics(tiny()).text(stats));
  const std::map<std::string, double> expected = {
      {with("vllm:num_requests_running"), 3},
      {with("fathom_requests_running"), 3},
      {with("vllm:num_requests_waiting"), 5},
      {with("vllm:num_requests_waiting_by_reason", R"(reason="capacity")"), 5},
      {with("fathom_waiting_tokens"), 700},
      {with("vllm:iteration_tokens_total_bucket", R"(le="1")"), 2},
      {with("vllm:iteration_tokens_total_bucket", R"(le="8")"), 2},
      {with("vllm:iteration_tokens_total_bucket", R"(le="16")"), 3},
      {with("vllm:iteration_tokens_total_bucket", R"(le="16384")"), 4},
      {with("vllm:iteration_tokens_total_bucket", R"(le="+Inf")"), 6},
      {with("vllm:iteration_tokens_total_sum"), 20'075},
      {with("fathom_rows_per_step_count"), 6},
      {with("vllm:kv_cache_usage_perc"), .25},
      {with("fathom_kv_pages_in_use"), 100},
      {with("vllm:prompt_tokens_total"), 1000},
      {with("vllm:generation_tokens_total"), 2000},
      {with("vllm:prefix_cache_queries_total"), 900},
      {with("vllm:prefix_cache_hits_total"), 300},
      {with("vllm:num_preemptions_total"), 4},
      {with("fathom_admission_holds_total"), 31},
      {with("fathom_held_steps_total"), 32},
      {with("fathom_kv_pages_evicted_total"), 33},
      {with("fathom_setting_changes_total"), 34},
      {with("fathom_setting_seconds_total", R"(setting="drafts")"), 2.5},
      {with("fathom_graph_fallbacks_total"), 7},
      {with("vllm:spec_decode_num_drafts_total"), 11},
      {with("vllm:spec_decode_num_draft_tokens_total"), 44},
      {with("vllm:spec_decode_num_accepted_tokens_total"), 22},
      {with("vllm:spec_decode_num_accepted_tokens_per_pos_total", R"(position="1")"), 9},
      {with("vllm:request_success_total", R"(finished_reason="stop")"), 8},
      {with("fathom_requests_finished_total", R"(finished_reason="abort")"), 2},
      {with("fathom_prompt_tokens_by_source_total", R"(source="local_compute")"), 700},
      {with("vllm:prompt_tokens_by_source_total", R"(source="local_cache_hit")"), 180},
      {with("vllm:prompt_tokens_by_source_total", R"(source="external_kv_transfer")"), 120},
      {with("fathom_engine_seconds_total", R"(part="forward")"), 1.25},
      {with("fathom_memory_bytes", R"(of="weights")"), 700},
      {with("fathom_memory_bytes", R"(of="kv_cache")"), 40},
      {with("fathom_memory_bytes", R"(of="workspace")"), 5},
      {with("fathom_expert_imbalance_ratio"), 1.5},
      {with("fathom_rank_imbalance_ratio"), 1.25},
      {with("fathom_eplb_plans_total", R"(outcome="taken")"), 41},
      {with("fathom_eplb_plans_total", R"(outcome="refused")"), 42},
      {with("fathom_eplb_experts_moved_total"), 43},
      {with("fathom_eplb_seconds_total"), .125},
      {with("fathom_eplb_mean_rank_tokens_total"), 44.5},
      {with("fathom_eplb_max_rank_tokens_total"), 89},
      {with("fathom_eplb_balancedness_ratio"), .75},
      {with("vllm:cache_config_info",
            R"(block_size="16",num_gpu_blocks="400",enable_prefix_caching="False")"),
       1}};
  for (const auto& [name, value] : expected) EXPECT_EQ(scrape.at(name), value) << name;

  for (const auto& [name, type] : scrape.types) {
    // A histogram, in spite of the _total in vLLM's name.
    const bool misnamed = name == "vllm:iteration_tokens_total";
    EXPECT_EQ(name.ends_with("_total") && !misnamed, type == "counter") << name;
  }
}

// A GPU's router does not count, and an absent series is no 0.
TEST(ServeMetrics, AnUncountedRouterHasNoSeries) {
  const Scrape scrape(ServeMetrics(tiny()).text({}));
  EXPECT_FALSE(scrape.samples.contains(with("fathom_expert_imbalance_ratio")));
  EXPECT_FALSE(scrape.samples.contains(with("fathom_rank_imbalance_ratio")));
  EXPECT_FALSE(scrape.samples.contains(with("fathom_eplb_experts_moved_total")));
}

TEST(ServeMetrics, NoPagesAreNoNan) {
  EXPECT_EQ(Scrape(ServeMetrics(tiny()).text({})).at(with("vllm:kv_cache_usage_perc")), 0);
}

TEST(ServeMetrics, TellsOfTheProcess) {
  const ServeMetrics metrics(tiny());
  const Scrape before(metrics.text({}));
  std::vector<char> touched(64 << 20, 1);
  const std::ifstream open("/proc/self/stat");
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  while (std::chrono::steady_clock::now() < until) touched[touched[0]] = 1;
  const Scrape after(metrics.text({}));
  const auto grown = [&](const char* name) { return after.at(with(name)) - before.at(with(name)); };
  EXPECT_GE(grown("process_resident_memory_bytes"), 60 << 20);
  EXPECT_GE(grown("process_virtual_memory_bytes"), 64 << 20);
  EXPECT_EQ(grown("process_open_fds"), 1);
  EXPECT_GT(grown("process_cpu_seconds_total"), 0);
  EXPECT_LT(grown("process_cpu_seconds_total"), 60);
  EXPECT_GE(after.at(with("process_max_fds")), after.at(with("process_open_fds")));
}

TEST(ServeMetrics, CountersOnlyGrow) {
  std::mt19937_64 random(4);
  ServeMetrics metrics(tiny());
  GeneratorStats stats;
  std::map<std::string, double> before;
  for (int round = 0; round < 30; ++round) {
    stats.waiting = static_cast<int64_t>(random() % 9);
    stats.prefix_queried_tokens += 100, stats.prompt_tokens += 100;
    stats.prefix_hit_tokens += static_cast<int64_t>(random() % 101);
    stats.generated_tokens += static_cast<int64_t>(random() % 50);
    metrics.finished(request_of(some_ns(random), some_ns(random), some_ns(random), some_ns(random),
                                static_cast<int64_t>(random() % 4)));
    metrics.answered(1, 3);
    metrics.responded("/v1/chat/completions", random() % 2 ? 200 : 429);
    metrics.client_disconnected();
    const Scrape scrape(metrics.text(stats));
    std::map<std::string, double> now;
    for (const auto& [name, value] : scrape.samples)
      for (const char* kind : {"_total{", "_count{", "_sum{", "_bucket{"})
        if (name.find(kind) != std::string::npos) now[name] = value;
    for (const auto& [name, value] : before) {
      ASSERT_TRUE(now.contains(name)) << name;
      EXPECT_GE(now[name], value) << name;
    }
    before = std::move(now);
  }
  EXPECT_EQ(before.at(with("fathom_client_disconnects_total")), 30);
  EXPECT_EQ(before.at(with("vllm:request_params_n_count")), 30);
  EXPECT_EQ(before.at(with("vllm:request_max_num_generation_tokens_sum")), 90);
}

TEST(ServeMetrics, NamesAreEscaped) {
  ServeMetrics metrics({.name = "a\"b\\c\nd", .max_context = 10});
  const Scrape scrape(metrics.text({}));
  EXPECT_EQ(scrape.at(R"(fathom_requests_running{model_name="a\"b\\c\nd",engine="0"})"), 0);
}

TEST(ServeMetrics, ClientsCannotMakeUpRoutes) {
  ServeMetrics metrics(tiny());
  const size_t before = Scrape(metrics.text({})).samples.size();
  for (int i = 0; i < 2000; ++i) metrics.responded(fmt::format("/{}\"}} 1\n", i), 404);
  metrics.responded("other", 404);
  for (int i = 0; i < 100; ++i) metrics.responded(fmt::format("/v1/models/{}", i), 404);
  metrics.responded("/v1/chat/completions", 503);
  metrics.responded("/", 200);
  const Scrape scrape(metrics.text({}));
  EXPECT_EQ(scrape.samples.size(), before + 4);
  EXPECT_EQ(scrape.at(with("fathom_http_responses_total", R"(route="other",status="4xx")")), 2001);
  EXPECT_EQ(scrape.at(with("fathom_http_responses_total", R"(route="/v1/chat/completions",status="5xx")")),
            1);
}

TEST(ServeMetrics, MedianOfTimeToFirstToken) {
  ServeMetrics metrics(tiny());
  EXPECT_FALSE(metrics.median_time_to_first_token_s());
  metrics.finished(request_of(0, 40, 0, 0, 0));  // no token: not counted
  EXPECT_FALSE(metrics.median_time_to_first_token_s());
  for (const int64_t ms : {1, 3, 30, 30, 30, 700, 9000})
    metrics.finished(request_of(0, ms * 1'000'000, 0, 5));
  // The exact median is 30 ms; a histogram knows only the bucket.
  EXPECT_GT(*metrics.median_time_to_first_token_s(), .02);
  EXPECT_LE(*metrics.median_time_to_first_token_s(), .04);

  ServeMetrics slow(tiny());
  slow.finished(request_of(0, 3'000'000'000'000, 0, 5));
  EXPECT_EQ(slow.median_time_to_first_token_s(), 2560);  // above all buckets: the last bound
}

TEST(ServeMetrics, RefusesTimesOutOfOrder) {
  ServeMetrics metrics(tiny());
  EXPECT_THROW(metrics.finished(request_of(0, -1, 5, 5)), ContractError);
  EXPECT_THROW(metrics.finished(request_of(0, 5, 5, -1)), ContractError);
  EXPECT_THROW(metrics.responded("/", 99), ContractError);
  EXPECT_THROW(metrics.responded("/", 600), ContractError);
  expect_identities(Scrape(metrics.text({})));
}

}  // namespace
}  // namespace fathom::serve
