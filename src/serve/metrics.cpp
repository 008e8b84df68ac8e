#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/expect.h"
#include "serve/device_series.h"
#include "serve/exposition.h"
#include "serve/histogram.h"
#include "serve/process_series.h"

namespace fathom::serve {
namespace {

using engine::GeneratorStats;

// vLLM's bucket bounds, and finer ones below 10 ms and below vLLM's first bound.
constexpr double kFirstTokenBounds[] = {.0001, .0002, .0005, .001, .0015, .002, .003, .004, .005, .0075,
                                        .01,   .02,   .04,   .06,  .08,   .1,   .25,  .5,   .75,  1,
                                        2.5,   5,     7.5,   10,   20,    40,   80,   160,  640,  2560};
constexpr double kPhaseBounds[]  = {.0001, .0002, .0005, .001, .002, .003, .005, .0075, .01,  .02, .05, .1,
                                    .2,    .3,    .5,    .8,   1,    1.5,  2,    2.5,   5,    10,  15,  20,
                                    30,    40,    50,    60,   120,  240,  480,  960,   1920, 7680};
constexpr double kChoiceBounds[] = {1, 2, 5, 10, 20};

constexpr double kNanoseconds = 1e9;  // in a second

// The bounds 1, 2, 5, 10, ... up to `largest`.
std::vector<double> one_two_five(int64_t largest) {
  std::vector<double> bounds;
  for (double decade = 1; decade <= static_cast<double>(largest); decade *= 10)
    for (const double step : {1., 2., 5.})
      if (step * decade <= static_cast<double>(largest)) bounds.push_back(step * decade);
  return bounds;
}

int64_t ns(std::chrono::steady_clock::duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

// The known paths, as labels.
constexpr std::string_view kRouteNames[] = {"/",
                                            "/detokenize",
                                            "/health",
                                            "/live",
                                            "/metrics",
                                            "/openapi.json",
                                            "/ping",
                                            "/ready",
                                            "/stats",
                                            "/tokenize",
                                            "/v1/chat/completions",
                                            "/v1/completions",
                                            "/v1/detokenize",
                                            "/v1/health",
                                            "/v1/models",
                                            "/v1/responses",
                                            "/v1/tokenize",
                                            "/version",
                                            "other"};
constexpr std::string_view kStatuses[]   = {"1xx", "2xx", "3xx", "4xx", "5xx"};

size_t route_index(std::string_view route) {
  // A model's name, which clients may make up, is no label.
  if (route.starts_with("/v1/models/")) route = "/v1/models";
  const auto* known = std::find(std::begin(kRouteNames), std::end(kRouteNames) - 1, route);
  return static_cast<size_t>(known - std::begin(kRouteNames));
}

// Everything that is counted here. An export copies it under one lock.
struct Counts {
  explicit Counts(int64_t max_context)
      : prompt_tokens(one_two_five(max_context)),
        computed_tokens(prompt_tokens),
        generated_tokens(prompt_tokens),
        longest_tokens(prompt_tokens),
        max_tokens(prompt_tokens) {}

  Histogram queue{kPhaseBounds, kNanoseconds}, prefill = queue, decode = queue, inference = queue,
                                               end_to_end = queue;
  Histogram first_token{kFirstTokenBounds, kNanoseconds};
  Histogram gap{kTokenGapBounds, kNanoseconds}, per_output_token = gap;
  Histogram abandoned_in_queue = queue, abandoned_in_prefill = queue;
  Histogram prompt_tokens, computed_tokens, generated_tokens, longest_tokens, max_tokens;
  Histogram choices{kChoiceBounds};

  std::array<std::array<int64_t, std::size(kStatuses)>, std::size(kRouteNames)> responses{};
  int64_t disconnects = 0;
};

using Counted = std::vector<std::pair<std::string, int64_t>>;

void add_requests(const GeneratorStats& stats, Exposition& to) {
  to.gauge({"fathom_requests_running", "vllm:num_requests_running"}, "Requests in the running batch.",
           static_cast<double>(stats.running));
  to.gauge({"fathom_requests_waiting", "vllm:num_requests_waiting"}, "Requests in the queue.",
           static_cast<double>(stats.waiting));
  // In vLLM a queued request may also wait for a transfer or a grammar. Here both are done before it is
  // queued.
  const Counted waiting = {{"capacity", stats.waiting}, {"deferred", 0}};
  to.gauges<int64_t>({"fathom_requests_waiting_by_reason", "vllm:num_requests_waiting_by_reason"},
                     "The same, by what they wait for.", "reason", waiting);
  to.gauge({"fathom_waiting_tokens"}, "Prompt tokens of the requests in the queue.",
           static_cast<double>(stats.waiting_tokens));
  Counted finished;
  for (int reason = 0; reason < engine::kFinishReasons; ++reason)
    finished.emplace_back(engine::name_of(static_cast<engine::FinishReason>(reason)),
                          stats.finished[static_cast<size_t>(reason)]);
  to.counters<int64_t>({"fathom_requests_finished", "vllm:request_success"},
                       "Requests that ended, by why; an abort or an error is no success, whatever the name.",
                       "finished_reason", finished);
  to.counter({"fathom_preemptions", "vllm:num_preemptions"}, "Running requests sent back to the queue.",
             stats.preemptions);
  to.counter({"fathom_admission_holds"}, "Times that admission closed because the KV cache was nearly full.",
             stats.admission_holds);
  to.counter({"fathom_held_steps"}, "Steps that kept a request waiting while it was closed.",
             stats.held_steps);
}

void add_tokens(const GeneratorStats& stats, Exposition& to) {
  // Hits cannot exceed the tokens of these prompts. Blocks from a prefill worker are hits too: they land in
  // the prefix cache before the request is queued.
  const int64_t hits      = std::min(stats.prefix_hit_tokens, stats.prompt_tokens);
  const int64_t received  = std::min(stats.received_hit_tokens, hits);
  const Counted by_source = {{"local_compute", stats.prompt_tokens - hits},
                             {"local_cache_hit", hits - received},
                             {"external_kv_transfer", received}};
  to.counter({"fathom_prompt_tokens", "vllm:prompt_tokens"}, "Tokens of prompts that were taken on.",
             stats.prompt_tokens);
  to.counters<int64_t>({"fathom_prompt_tokens_by_source", "vllm:prompt_tokens_by_source"},
                       "The same, by where their keys and values came from.", "source", by_source);
  to.counter({"fathom_prompt_tokens_cached", "vllm:prompt_tokens_cached"},
             "Tokens of prompts that were not computed anew.", hits);
  to.counter({"fathom_generated_tokens", "vllm:generation_tokens"}, "Tokens written.",
             stats.generated_tokens);
  to.counter({"fathom_prefix_queried_tokens", "vllm:prefix_cache_queries"},
             "Tokens looked up in the prefix cache, once for each admission.", stats.prefix_queried_tokens);
  to.counter({"fathom_prefix_hit_tokens", "vllm:prefix_cache_hits"}, "Those of them that it held.",
             stats.prefix_hit_tokens);
}

// With --enable-eplb. vLLM logs the balancedness and exports no series of EPLB.
void add_eplb(const engine::EplbStats& eplb, Exposition& to) {
  const Counted plans = {{"taken", eplb.plans_taken}, {"refused", eplb.plans_refused}};
  to.counters<int64_t>({"fathom_eplb_plans"},
                       "Placements of a layer's experts that were planned; refused: it would not have paid.",
                       "outcome", plans);
  to.counter({"fathom_eplb_experts_moved"}, "Replicas of experts that came to a rank.", eplb.experts_moved);
  to.counter({"fathom_eplb_seconds"}, "Time for counting and planning, between steps.", eplb.seconds);
  to.counter({"fathom_eplb_mean_rank_tokens"},
             "Tokens of experts that a rank computed on average, of each step and layer.",
             eplb.mean_rank_tokens);
  to.counter({"fathom_eplb_max_rank_tokens"},
             "The same of each step's and layer's most loaded rank, for which the others wait.",
             eplb.max_rank_tokens);
  if (eplb.balancedness)
    to.gauge({"fathom_eplb_balancedness_ratio"},
             "Mean over most loaded rank in the steps before the latest plans; 1 is even.",
             *eplb.balancedness);
}

void add_engine(const GeneratorStats& stats, Exposition& to) {
  to.counter({"fathom_steps"}, "Forward passes.", stats.steps);
  to.counter({"fathom_step_rows"}, "Tokens computed in them.", stats.step_rows);
  to.gauge({"fathom_engine_stalled_seconds"}, "How long the engine has had work and ended no step.",
           stats.stalled_s);
  to.histogram({"fathom_rows_per_step", "vllm:iteration_tokens_total"}, "Tokens computed in one.",
               Histogram(engine::kStepRowBounds, stats.steps_by_rows, stats.step_rows));
  to.counter(
      {"fathom_graph_fallbacks"},
      "Steps, or pieces of steps, launched kernel by kernel because their CUDA graph could not be captured.",
      stats.graph_fallbacks);
  const std::pair<std::string, double> seconds[] = {
      {"schedule", stats.schedule_s}, {"forward", stats.forward_s}, {"sample", stats.sample_s}};
  to.counters<double>({"fathom_engine_seconds"}, "Where the engine's time went.", "part", seconds);
  to.counter({"fathom_setting_changes"}, "Times that --adaptive changed the engine's setting.",
             stats.setting_changes);
  std::array<std::pair<std::string, double>, engine::kSettingNames.size()> by_setting;
  for (size_t i = 0; i < by_setting.size(); ++i)
    by_setting[i] = {std::string(engine::kSettingNames[i]), stats.setting_s[i]};
  to.counters<double>({"fathom_setting_seconds"}, "Time of steps under each setting of --adaptive.",
                      "setting", by_setting);
  const Counted memory = {{"weights", stats.memory.weights},
                          {"kv_cache", stats.memory.kv_cache},
                          {"workspace", stats.memory.workspace}};
  to.gauges<int64_t>({"fathom_memory_bytes"},
                     "Memory that the engine keeps: of the GPU where it runs on one, else of the host.", "of",
                     memory);
  if (!stats.weight_version.empty())
    to.info({"fathom_weights_info"}, "The version of the weights in use.",
            {{"weight_version", stats.weight_version}});
  to.counter({"fathom_weight_updates"}, "Times that the weights were replaced.", stats.weight_updates);
  if (stats.router_imbalance)
    to.gauge({"fathom_expert_imbalance_ratio"},
             "Tokens of the most loaded expert over the mean of its layer's, in the most uneven layer.",
             *stats.router_imbalance);
  if (stats.rank_imbalance)
    to.gauge({"fathom_rank_imbalance_ratio"},
             "Tokens of the most loaded rank's experts over the mean of the ranks, in the most uneven layer.",
             *stats.rank_imbalance);

  if (stats.eplb) add_eplb(*stats.eplb, to);

  to.counter({"fathom_drafts", "vllm:spec_decode_num_drafts"}, "Drafts verified.", stats.drafts);
  to.counter({"fathom_drafted_tokens", "vllm:spec_decode_num_draft_tokens"}, "Tokens in them.",
             stats.drafted_tokens);
  to.counter({"fathom_accepted_tokens", "vllm:spec_decode_num_accepted_tokens"},
             "Drafted tokens that were right.", stats.accepted_tokens);
  Counted at;
  for (const int64_t accepted : stats.accepted_at) at.emplace_back(std::to_string(at.size()), accepted);
  to.counters<int64_t>({"fathom_accepted_tokens_per_pos", "vllm:spec_decode_num_accepted_tokens_per_pos"},
                       "The same, by their place in the draft.", "position", at);
}

void add_cache(const GeneratorStats& stats, const ServeMetrics::Model& model, Exposition& to) {
  to.gauge({"fathom_kv_pages"}, "Pages of the KV cache.", static_cast<double>(stats.pages));
  to.gauge({"fathom_kv_pages_in_use"}, "Pages of it that requests hold.",
           static_cast<double>(stats.pages_in_use));
  to.gauge({"fathom_kv_usage_ratio", "vllm:kv_cache_usage_perc"}, "Share of the pages in use, 0 to 1.",
           stats.pages == 0 ? 0 : static_cast<double>(stats.pages_in_use) / static_cast<double>(stats.pages));
  to.counter({"fathom_kv_pages_evicted"}, "Pages whose cached prefix was evicted for other tokens.",
             stats.forgotten_pages);
  to.info({"fathom_cache_config_info", "vllm:cache_config_info"}, "How the KV cache is set up.",
          {{"block_size", std::to_string(model.page_tokens)},
           {"num_gpu_blocks", std::to_string(stats.pages)},  // vLLM's name, on CPUs too
           {"enable_prefix_caching", model.shares_prefixes ? "True" : "False"}});
}

void add_router(const RouterStats& stats, Exposition& to) {
  to.counter({"fathom_router_replays"}, "Attempts at requests after a first one.", stats.replays);
  to.counter({"fathom_router_dropped_events"}, "Events of ended attempts.", stats.dropped_events);
  to.counter({"fathom_router_ejections"}, "Times that a worker was ejected because it was slow.",
             stats.ejections);
  to.counter({"fathom_router_role_changes"}, "Workers that the planner moved between prefill and decode.",
             stats.role_changes);
  Counted moves, decisions;
  for (size_t i = 0; i < kMoveCauses.size(); ++i) moves.emplace_back(kMoveCauses[i], stats.moves[i]);
  to.counters<int64_t>({"fathom_router_moves"}, "Requests that left their worker, by why.", "cause", moves);
  for (size_t i = 0; i < stats.decisions.size(); ++i)
    decisions.emplace_back(DynamicRouting::kDecisionNames[i], stats.decisions[i]);
  to.counters<int64_t>({"fathom_router_decisions"},
                       "Where prompts are computed, and why, by --routing-policy dynamic.", "decision",
                       decisions);
  Counted usable;
  std::vector<std::pair<std::string, double>> utilization;
  for (const RouterStats::Worker& worker : stats.workers) {
    usable.emplace_back(worker.address,
                        worker.alive && worker.ready && worker.progressing && !worker.ejected);
    utilization.emplace_back(worker.address, worker.utilization);
  }
  to.gauges<int64_t>({"fathom_router_worker_up"},
                     "1: the worker is alive, ready, progressing and not ejected.", "worker", usable);
  to.gauges<double>({"fathom_router_worker_utilization_ratio"}, "What the worker says of its load, 1: full.",
                    "worker", utilization);
}

void add_kv_connector(const KvConnectorStats& stats, Exposition& to) {
  to.gauge({"fathom_kv_connector_up"}, "1: the KV cache pool answers.", stats.up ? 1 : 0);
  to.counters<int64_t>({"fathom_kv_connector_lookups"},
                       "Prompts that were looked up in the KV cache pool, by what came of it.", "result",
                       Counted{{"loaded", stats.loads},
                               {"missed", stats.misses},
                               {"unneeded", stats.unneeded},
                               {"failed", stats.failures}});
  to.counter({"fathom_kv_connector_loaded_blocks"}, "Blocks that came from the pool.", stats.loaded_blocks);
  to.counter({"fathom_kv_connector_loaded_bytes"}, "Their bytes.", stats.loaded_bytes);
  to.counter({"fathom_kv_connector_stored_prompts"},
             "Prompts of which the pool has all blocks that were still here to be brought.",
             stats.stored_prompts);
  to.counter({"fathom_kv_connector_stored_blocks"}, "Blocks that were brought to the pool.",
             stats.stored_blocks);
  to.counter({"fathom_kv_connector_stored_bytes"}, "Their bytes.", stats.stored_bytes);
  to.counter({"fathom_kv_connector_dropped_prompts"},
             "Prompts whose blocks were not brought: too many waited, or the pool was away.", stats.dropped);
  to.counter({"fathom_kv_connector_outages"}, "Times that the pool was lost.", stats.outages);
}

void add_slo(const SloStats& stats, Exposition& to) {
  to.gauge({"fathom_slo_limit"}, "Requests that --ttft-slo-ms lets run at once.",
           static_cast<double>(stats.limit));
  to.gauge({"fathom_slo_ttft_p95_seconds"}, "The latest P95 that it was changed by.", stats.percentile_s);
  to.counter({"fathom_slo_violations"}, "Times that the P95 was above the target.", stats.violations);
  to.counter({"fathom_slo_refused"}, "Requests beyond the limit.", stats.refused);
}

void add_responses(const Counts& counts, Exposition& to) {
  std::vector<Series> series;
  for (size_t route = 0; route < counts.responses.size(); ++route)
    for (size_t status = 0; status < std::size(kStatuses); ++status)
      if (const int64_t count = counts.responses[route][status]; count > 0)
        series.push_back(
            {{{"route", std::string(kRouteNames[route])}, {"status", std::string(kStatuses[status])}},
             static_cast<double>(count)});
  to.counters({"fathom_http_responses"}, "Answers whose head was sent, by path and class of status.", series);
}

void add_histograms(const Counts& counts, Exposition& to) {
  to.histogram({"fathom_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"},
               "From arrival to the first token.", counts.first_token);
  to.histogram({"fathom_inter_token_latency_seconds", "vllm:inter_token_latency_seconds"},
               "Between arrivals of tokens of one request.", counts.gap);
  to.histogram({"fathom_time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds"},
               "Decode time over the tokens after the first; requests of one token are not in it.",
               counts.per_output_token);
  to.histogram({"fathom_request_e2e_seconds", "vllm:e2e_request_latency_seconds"},
               "From arrival to end: queue + inference.", counts.end_to_end);
  to.histogram({"fathom_request_queue_seconds", "vllm:request_queue_time_seconds"},
               "From arrival until first scheduled.", counts.queue);
  to.histogram({"fathom_request_inference_seconds", "vllm:request_inference_time_seconds"},
               "From first scheduled to end: prefill + decode.", counts.inference);
  to.histogram({"fathom_request_prefill_seconds", "vllm:request_prefill_time_seconds"},
               "From first scheduled to the first token.", counts.prefill);
  to.histogram({"fathom_request_decode_seconds", "vllm:request_decode_time_seconds"},
               "From the first token to the end.", counts.decode);
  to.histograms(
      {"fathom_request_abandoned_seconds"},
      "From arrival to the end of requests that ended before their first token, by where they were.",
      {{{{"phase", "queue"}}, &counts.abandoned_in_queue},
       {{{"phase", "prefill"}}, &counts.abandoned_in_prefill}});

  to.histogram({"fathom_request_prompt_tokens", "vllm:request_prompt_tokens"}, "Tokens of a prompt.",
               counts.prompt_tokens);
  to.histogram({"fathom_request_computed_tokens", "vllm:request_prefill_kv_computed_tokens"},
               "Tokens of a prompt that were computed anew.", counts.computed_tokens);
  to.histogram({"fathom_request_generated_tokens", "vllm:request_generation_tokens"},
               "Tokens written for a request.", counts.generated_tokens);
  to.histogram({"fathom_request_longest_tokens", "vllm:request_max_num_generation_tokens"},
               "Tokens of the longest of a call's choices.", counts.longest_tokens);
  to.histogram({"fathom_request_max_tokens", "vllm:request_params_max_tokens"},
               "Tokens that a request may have at most.", counts.max_tokens);
  to.histogram({"fathom_request_choices", "vllm:request_params_n"}, "Choices that a call asked for.",
               counts.choices);
}

}  // namespace

void TokenGaps::arrived(engine::TimePoint now) {
  if (last_) {
    const int64_t gap_ns = std::max<int64_t>(0, ns(now - *last_));
    const auto* bound    = std::lower_bound(kTokenGapBounds.begin(), kTokenGapBounds.end(),
                                            static_cast<double>(gap_ns) / kNanoseconds);
    ++counts_[static_cast<size_t>(bound - kTokenGapBounds.begin())];
    sum_ns_ += gap_ns;
  }
  last_ = now;
}

struct ServeMetrics::State {
  Model model;
  Sources sources;
  double started_s;  // since 1970
  mutable std::mutex mutex;
  Counts counts;
};

ServeMetrics::ServeMetrics(Model model, Sources sources) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t max_context               = model.max_context;
  state_.reset(new State{std::move(model), std::move(sources), now.count(), {}, Counts(max_context)});
}

ServeMetrics::~ServeMetrics() = default;

void ServeMetrics::finished(const FinishedRequest& request) {
  const auto& [received, scheduled, first_token, finished] = request.times;
  FATHOM_EXPECT(received <= scheduled && scheduled <= first_token && first_token <= finished,
                "a request's times are in order");
  const std::lock_guard lock(state_->mutex);
  Counts& counts = state_->counts;
  if (request.generated_tokens == 0) {
    (scheduled == finished ? counts.abandoned_in_queue : counts.abandoned_in_prefill)
        .observe(ns(finished - received));
    return;
  }
  counts.end_to_end.observe(ns(finished - received));
  counts.queue.observe(ns(scheduled - received));
  counts.inference.observe(ns(finished - scheduled));
  counts.prefill.observe(ns(first_token - scheduled));
  counts.decode.observe(ns(finished - first_token));
  counts.first_token.observe(ns(first_token - received));
  if (request.generated_tokens > 1)
    counts.per_output_token.observe(ns(finished - first_token) / (request.generated_tokens - 1));
  counts.gap.add(request.gaps.counts(), request.gaps.sum_ns());
  counts.prompt_tokens.observe(request.prompt_tokens);
  counts.computed_tokens.observe(request.prompt_tokens - request.cached_tokens);
  counts.generated_tokens.observe(request.generated_tokens);
  counts.max_tokens.observe(request.max_tokens);
}

void ServeMetrics::answered(int64_t choices, int64_t longest_tokens) {
  const std::lock_guard lock(state_->mutex);
  state_->counts.choices.observe(choices);
  state_->counts.longest_tokens.observe(longest_tokens);
}

void ServeMetrics::responded(std::string_view route, int status) {
  FATHOM_EXPECT(status >= 100 && status < 600, "a status of HTTP");
  const std::lock_guard lock(state_->mutex);
  ++state_->counts.responses[route_index(route)][static_cast<size_t>(status / 100 - 1)];
}

void ServeMetrics::client_disconnected() {
  const std::lock_guard lock(state_->mutex);
  ++state_->counts.disconnects;
}

std::optional<double> ServeMetrics::median_time_to_first_token_s() const {
  const std::lock_guard lock(state_->mutex);
  return state_->counts.first_token.median();
}

std::string ServeMetrics::text(const GeneratorStats& stats, const GpuMonitor::Scrape* gpus) const {
  const Counts counts = [&] {
    const std::lock_guard lock(state_->mutex);
    return state_->counts;
  }();
  Exposition exposition({{"model_name", state_->model.name}, {"engine", "0"}});
  add_requests(stats, exposition);
  add_tokens(stats, exposition);
  add_engine(stats, exposition);
  add_cache(stats, state_->model, exposition);
  add_histograms(counts, exposition);
  const Sources& sources = state_->sources;
  if (sources.router) add_router(sources.router(), exposition);
  if (sources.kv_connector) add_kv_connector(sources.kv_connector(), exposition);
  if (sources.slo) add_slo(sources.slo(), exposition);
  add_device_series(gpus, sources.cpu_energy ? sources.cpu_energy() : std::vector<machine::CpuEnergy>(),
                    exposition);
  add_responses(counts, exposition);
  if (sources.http) {
    const http::ServerStats http = sources.http();
    exposition.gauge({"fathom_http_connections"}, "Connections open.", static_cast<double>(http.connections));
    exposition.counter({"fathom_http_connections_accepted"}, "Connections so far.", http.accepted);
    exposition.counter({"fathom_http_connections_refused"}, "Connections beyond the limit.", http.refused);
    exposition.counter({"fathom_http_connections_stalled"}, "Clients dropped because they did not read.",
                       http.dropped_stalled);
  }
  exposition.counter({"fathom_client_disconnects"}, "Clients that left before their answer was whole.",
                     counts.disconnects);
  add_process_series(state_->started_s, exposition);
  return exposition.text();
}

}  // namespace fathom::serve
