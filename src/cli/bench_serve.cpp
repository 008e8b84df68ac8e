// fathom bench serve: latency and throughput of any OpenAI-compatible server under load, by the definitions
// of `vllm bench serve`.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench_flags.h"
#include "cli/bench_serve_page.h"
#include "cli/ctrl_c.h"
#include "cli/number_check.h"
#include "cli/open_file_limit.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/atomic_file.h"
#include "core/exit_code.h"
#include "http/client.h"
#include "lab/json_text.h"
#include "lab/record.h"
#include "load/arrivals.h"
#include "load/report.h"
#include "load/run.h"
#include "model/tokenizer.h"

namespace fathom::cli {
namespace {

using nlohmann::json;

constexpr int kBisections    = 4;      // each factor of 2 in 16 steps: 4.4 %
constexpr double kTrialLeast = 40;     // requests of a trial: one late answer is then below 5 %
constexpr double kTrialMost  = 16384;  // all prompts of a trial are in memory
constexpr double kTrialE2el  = 10;     // length of a trial, in units of an idle server's E2E latency

struct BenchServeFlags {
  std::string base_url, host = "127.0.0.1", endpoint, backend = "openai", model, api_key, tokenizer, label;
  int port = 8000;
  WorkloadFlags workload;
  double request_rate = std::numeric_limits<double>::infinity(), burstiness = 1, timeout_s = 6 * 3600;
  std::string ramp;
  double ramp_start = 0, ramp_end = 0;
  int64_t max_concurrency = 0, num_warmups = 0;
  bool ignore_eos = false, insecure = false, save_result = false, save_detailed = false;
  std::optional<double> temperature;
  std::vector<std::string> goodput;
  std::string percentile_metrics = "ttft,tpot,itl", metric_percentiles = "99";
  std::string result_dir, result_filename, report;
  std::vector<double> sweep;
  double sweep_window_s = 20, sweep_from = 0;
  std::vector<int64_t> heatmap;
  int64_t heatmap_prompts = 32;
};

http::Url url_of(const BenchServeFlags& flags) {
  return value_or_usage_error(http::parse_url(
      flags.base_url.empty() ? fmt::format("http://{}:{}", flags.host, flags.port) : flags.base_url));
}

load::ArrivalProcess arrivals_of(const BenchServeFlags& flags) {
  load::ArrivalProcess arrivals{
      .request_rate = flags.request_rate, .burstiness = flags.burstiness, .seed = flags.workload.seed};
  if (flags.ramp.empty()) return arrivals;
  if (flags.ramp_start <= 0 || flags.ramp_end < flags.ramp_start)
    throw UsageError(
        "--ramp-up-strategy needs --ramp-up-start-rps above 0 and --ramp-up-end-rps not below it");
  if (!flags.sweep.empty()) throw UsageError("--sweep chooses its own rates: leave out --ramp-up-strategy");
  arrivals.ramp =
      load::Ramp{flags.ramp == "linear" ? load::Ramp::Shape::linear : load::Ramp::Shape::exponential,
                 flags.ramp_start, flags.ramp_end};
  return arrivals;
}

class ServeBench {
 public:
  explicit ServeBench(const BenchServeFlags& flags);

  int run();

 private:
  struct Measured {
    LoadPoint point;
    json result;
    bool interrupted;
  };

  std::vector<load::Request> workload(load::WorkloadSpec spec, int64_t count);
  // Sends requests at the times of `arrivals`, or at the trace's own times.
  load::RunResult load(const std::string& what, const std::vector<load::Request>& requests,
                       const std::vector<double>& arrivals_s, int64_t max_concurrency);
  Measured run_point(const std::string& what, const load::ArrivalProcess& arrivals);
  double test_request();  // end-to-end latency of a single request
  void warm_up();
  void find_saturation(double lone_e2el_s);
  void measure_lengths();
  std::string workload_text() const;
  std::string result_path() const;
  void write(const json& result) const;

  const BenchServeFlags& flags_;
  load::ReportedMetrics metrics_;
  load::LatencyGoals goals_;
  load::ArrivalProcess arrivals_;
  load::WorkloadSpec spec_;
  load::Config setup_;
  bool chat_;
  std::optional<model::Tokenizer> tokenizer_;
  std::unique_ptr<http::Client> client_;
  std::unique_ptr<load::Target> target_;
  ProgressDisplay display_;
  CtrlC interruption_;
  // Each run has new prompts: earlier ones may be in the server's prefix cache.
  uint64_t runs_ = 0;
  LoadReport report_;
  json points_ = json::array(), lengths_ = json::array();
};

ServeBench::ServeBench(const BenchServeFlags& flags)
    : flags_(flags),
      metrics_(value_or_usage_error(load::parse_metrics(flags.percentile_metrics, flags.metric_percentiles))),
      goals_(value_or_usage_error(load::parse_goals(flags.goodput))),
      arrivals_(arrivals_of(flags)),
      spec_(workload_spec(flags.workload)),
      display_(stderr, terminal_columns(STDERR_FILENO)) {
  const std::string endpoint = !flags.endpoint.empty()          ? flags.endpoint
                               : flags.backend == "openai-chat" ? "/v1/chat/completions"
                                                                : "/v1/completions";
  chat_                      = endpoint.ends_with("/chat/completions");
  if (!endpoint.starts_with('/')) throw UsageError("--endpoint starts with '/', e.g. /v1/completions");
  if (!flags.tokenizer.empty())
    tokenizer_ = value_or_usage_error(
        model::Tokenizer::load((std::filesystem::path(flags.tokenizer) / "tokenizer.json").string()));
  if (chat_ && !tokenizer_ && spec_.dataset != load::WorkloadSpec::Dataset::custom)
    throw UsageError(
        "a chat message is text: name a checkpoint's folder with --tokenizer, so that random token ids "
        "can be written as text, or use /v1/completions");
  raise_open_file_limit();
  const http::Url url = url_of(flags);
  client_             = value_or_usage_error(
                  http::Client::open(url, 2, flags.insecure ? http::Certificate::any : http::Certificate::verified));
  const char* variable  = std::getenv("OPENAI_API_KEY");
  const std::string key = !flags.api_key.empty() ? flags.api_key : variable ? variable : "";
  const std::string model =
      !flags.model.empty() ? flags.model : value_or_usage_error(load::first_model(*client_, key));
  setup_           = {.date            = local_timestamp(),
                      .backend         = flags.backend,
                      .label           = flags.label,
                      .model_id        = model,
                      .tokenizer_id    = flags.tokenizer,
                      .endpoint        = endpoint,
                      .max_concurrency = flags.max_concurrency};
  report_.server   = http::to_string(url) + endpoint;
  report_.workload = workload_text();
  // A model may end its answer to a random prompt anywhere; fixed lengths keep runs comparable.
  const bool ignore_eos = flags.ignore_eos || spec_.dataset != load::WorkloadSpec::Dataset::custom;
  target_               = load::openai_target(
                    *client_, {.endpoint    = endpoint,
                               .model       = model,
                               .api_key     = key,
                               .ignore_eos  = ignore_eos,
                               .temperature = flags.temperature,
                               .timeout     = std::chrono::nanoseconds(static_cast<int64_t>(flags.timeout_s * 1e9))});
}

std::vector<load::Request> ServeBench::workload(load::WorkloadSpec spec, int64_t count) {
  auto requests =
      value_or_usage_error(load::make_workload(spec, count, flags_.workload.seed + 1'000'003 * runs_++));
  if (tokenizer_) value_or_usage_error(load::write_as_text(requests, *tokenizer_));
  if (chat_ && std::any_of(requests.begin(), requests.end(), [](const auto& r) { return r.text.empty(); }))
    throw UsageError("a chat message is text, and the dataset has prompts of token ids: name --tokenizer");
  return requests;
}

load::RunResult ServeBench::load(const std::string& what, const std::vector<load::Request>& requests,
                                 const std::vector<double>& arrivals_s, int64_t max_concurrency) {
  auto result = load::run(*target_, requests, arrivals_s, load_options(display_, what, max_concurrency));
  display_.clear();
  return result;
}

ServeBench::Measured ServeBench::run_point(const std::string& what, const load::ArrivalProcess& arrivals) {
  auto requests         = workload(spec_, workload_count(flags_.workload));
  const bool self_timed = spec_.dataset == load::WorkloadSpec::Dataset::trace && !arrivals.ramp &&
                          std::isinf(arrivals.request_rate);
  std::vector<double> times;
  if (self_timed) {
    std::erase_if(requests, [](const load::Request& r) { return !r.at_s; });
    for (const auto& request : requests) times.push_back(*request.at_s);
  } else {
    times = load::arrival_times(arrivals, static_cast<int64_t>(requests.size()));
  }
  const auto run        = load(what, requests, times, flags_.max_concurrency);
  load::Config setup    = setup_;
  setup.num_prompts     = static_cast<int64_t>(requests.size());
  setup.arrivals        = arrivals;
  load::Summary summary = load::summarize(run.requests, run.duration_s, goals_);
  json result           = load::report_json(setup, summary, metrics_);
  if (flags_.save_detailed) load::add_details(result, run);
  fmt::print("{}", load::report_text(setup, summary, metrics_));
  std::fflush(stdout);
  if (run.interrupted)
    fmt::print(stderr, "Interrupted: the numbers are of what had been answered by then.\n");
  return {{.setup = std::move(setup), .summary = std::move(summary)}, std::move(result), run.interrupted};
}

double ServeBench::test_request() {
  auto requests = workload(spec_, 1);
  const std::vector<double> now(requests.size(), 0.0);
  const auto run = load("test request", requests, now, 1);
  const auto& r  = run.requests.front();
  if (r.state == load::RequestRecord::State::failed)
    throw UsageError(fmt::format("the first request to {} failed: {}", report_.server, r.error));
  return r.e2el_s();
}

void ServeBench::warm_up() {
  if (flags_.num_warmups == 0 || CtrlC::pressed()) return;
  const auto requests = workload(spec_, flags_.num_warmups);
  load("warm up", requests, std::vector<double>(requests.size(), 0.0), flags_.max_concurrency);
}

void ServeBench::find_saturation(double lone_e2el_s) {
  const auto trial = [&](double rate) -> std::optional<double> {
    const double window   = std::max(flags_.sweep_window_s, kTrialE2el * lone_e2el_s);
    const double count    = std::ceil(std::clamp(rate * window, kTrialLeast, kTrialMost));
    const auto requests   = workload(spec_, static_cast<int64_t>(count));
    auto arrivals         = arrivals_;
    arrivals.request_rate = rate;
    arrivals.seed += runs_;
    const auto times = load::arrival_times(arrivals, static_cast<int64_t>(requests.size()));
    const auto run =
        load(fmt::format("saturation: {:.3g} req/s", rate), requests, times, flags_.max_concurrency);
    if (run.interrupted) return {};
    const double ratio = load::completed_over_offered(run.requests, count / rate);
    fmt::print(stderr, "saturation: {:.4g} req/s offered, {:.1f} % of it completed\n", rate, 100 * ratio);
    return ratio;
  };
  const double first = flags_.sweep_from > 0 ? flags_.sweep_from : 1 / std::max(lone_e2el_s, 1e-3);
  report_.saturation = load::find_saturation(first, kBisections, trial);
  if (CtrlC::pressed()) return;
  if (report_.saturation.request_rate == 0)
    throw UsageError(fmt::format("{} holds no rate, not even {:.3g} req/s: see what fails without --sweep",
                                 report_.server, report_.saturation.trials.back().request_rate));
  fmt::print("Saturation (req/s): {:.4g}\n", report_.saturation.request_rate);
}

void ServeBench::measure_lengths() {
  const bool alone              = std::isinf(flags_.request_rate) && flags_.max_concurrency == 0;
  const int64_t max_concurrency = alone ? 1 : flags_.max_concurrency;
  report_.lengths_load          = alone ? "one after another"
                                  : std::isinf(flags_.request_rate)
                                      ? fmt::format("{} at a time", max_concurrency)
                                      : fmt::format("offered at {:.4g} requests/s", flags_.request_rate);
  std::vector<int64_t> lengths  = flags_.heatmap;
  std::sort(lengths.begin(), lengths.end());
  for (const int64_t length : lengths) {
    auto spec             = spec_;
    spec.dataset          = load::WorkloadSpec::Dataset::random;
    spec.input_len        = length;
    spec.range_ratio      = 0;
    spec.prefix_len       = 0;
    const auto requests   = workload(spec, flags_.heatmap_prompts);
    const auto times      = load::arrival_times(arrivals_, static_cast<int64_t>(requests.size()));
    const auto run        = load(fmt::format("{} tokens in", length), requests, times, max_concurrency);
    auto setup            = setup_;
    setup.num_prompts     = static_cast<int64_t>(requests.size());
    setup.arrivals        = arrivals_;
    setup.max_concurrency = max_concurrency;
    const auto summary    = load::summarize(run.requests, run.duration_s, goals_);
    json result         = load::report_json(setup, summary, {{"ttft", "tpot", "itl", "e2el"}, {50, 95, 99}});
    result["input_len"] = length;
    lengths_.push_back(std::move(result));
    fmt::print("{}", load::report_text(setup, summary, {{"ttft", "e2el"}, {50, 95, 99}}));
    report_.lengths.push_back({length, summary});
    if (run.interrupted) return;
  }
}

std::string ServeBench::workload_text() const {
  if (!spec_.path.empty()) return flags_.workload.dataset + ": " + spec_.path;
  std::string text =
      fmt::format("{}: {} tokens in, {} out", flags_.workload.dataset, spec_.input_len, spec_.output_len);
  if (spec_.range_ratio > 0) text += fmt::format(", lengths ± {:.3g} %", 100 * spec_.range_ratio);
  if (spec_.prefix_len > 0)
    text += fmt::format(", behind {} shared prefix{} of {}", spec_.num_prefixes,
                        spec_.num_prefixes > 1 ? "es" : "", spec_.prefix_len);
  return text;
}

std::string ServeBench::result_path() const {
  const std::string model = setup_.model_id.substr(setup_.model_id.rfind('/') + 1);
  const std::string load  = !report_.saturation.trials.empty() ? "sweep"
                            : arrivals_.ramp ? fmt::format("ramp-up-{}-{:g}qps-{:g}qps", flags_.ramp,
                                                           flags_.ramp_start, flags_.ramp_end)
                                             : fmt::format("{:g}qps", arrivals_.request_rate);
  const std::string name =
      !flags_.result_filename.empty()
          ? flags_.result_filename
          : fmt::format(
                "{}-{}{}-{}-{}.json", flags_.label.empty() ? flags_.backend : flags_.label, load,
                flags_.max_concurrency > 0 ? fmt::format("-concurrency{}", flags_.max_concurrency) : "",
                model.empty() ? "model" : model, setup_.date);
  return (std::filesystem::path(flags_.result_dir) / name).string();
}

void ServeBench::write(const json& result) const {
  if (flags_.save_result || flags_.save_detailed) {
    const std::string path = result_path();
    write_file_atomically(path, lab::json_text(result));
    fmt::print(stderr, "{}\n", path);
  }
  if (!flags_.report.empty() && !report_.points.empty()) {
    write_file_atomically(flags_.report, bench_serve_page(report_));
    fmt::print(stderr, "{}\n", flags_.report);
  }
}

int ServeBench::run() {
  const double lone_e2el_s = test_request();
  warm_up();
  if (flags_.sweep.empty()) {
    if (!CtrlC::pressed()) {
      Measured one = run_point("load", arrivals_);
      report_.points.push_back(std::move(one.point));
      points_.push_back(std::move(one.result));
    }
  } else {
    find_saturation(lone_e2el_s);
    for (const double relative : flags_.sweep) {
      if (CtrlC::pressed()) break;
      auto arrivals               = arrivals_;
      arrivals.request_rate       = relative * report_.saturation.request_rate;
      Measured one                = run_point(fmt::format("{:g} of saturation", relative), arrivals);
      one.point.of_saturation     = relative;
      one.result["of_saturation"] = relative;
      report_.points.push_back(std::move(one.point));
      points_.push_back(std::move(one.result));
    }
  }
  if (!flags_.heatmap.empty() && !CtrlC::pressed()) measure_lengths();
  if (points_.empty()) return kExitInvalid;

  // One point is written in vLLM's format; several, as a list of these.
  json result = points_.front();
  if (!flags_.sweep.empty()) {
    json trials = json::array();
    for (const auto& trial : report_.saturation.trials)
      trials.push_back(
          {{"request_rate", trial.request_rate}, {"completed_over_offered", trial.completed_over_offered}});
    result = {{"schema", "fathom.bench_serve_sweep/1"},
              {"date", setup_.date},
              {"model_id", setup_.model_id},
              {"saturation", report_.saturation.request_rate},
              {"trials", std::move(trials)},
              {"points", points_}};
  }
  if (!lengths_.empty()) result["lengths"] = lengths_;
  write(result);
  const bool any = std::any_of(report_.points.begin(), report_.points.end(),
                               [](const LoadPoint& p) { return p.summary.completed > 0; });
  return any ? kExitOk : kExitInvalid;
}

}  // namespace

void add_bench_serve(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<BenchServeFlags>();
  CLI::App& verb =
      *bench.add_subcommand("serve", "Load on any OpenAI-compatible server, as vllm bench serve");
  verb.add_option("--base-url", flags->base_url,
                  "http://HOST:PORT[/PREFIX] or https, in place of --host and --port");
  verb.add_flag("--insecure", flags->insecure, "https: take any certificate (else SSL_CERT_FILE adds one)");
  verb.add_option("--host", flags->host)->capture_default_str();
  verb.add_option("--port", flags->port)->check(whole_between(1, 65535))->capture_default_str();
  verb.add_option("--backend", flags->backend, "openai-chat: the endpoint is /v1/chat/completions")
      ->check(CLI::IsMember({"openai", "openai-chat", "vllm"}))
      ->capture_default_str();
  verb.add_option("--endpoint", flags->endpoint, "Path (default: /v1/completions)");
  verb.add_option("--model", flags->model, "Its name (default: the first of /v1/models)");
  verb.add_option("--api-key", flags->api_key, "Sent as Bearer token (default: $OPENAI_API_KEY)");
  verb.add_option("--tokenizer", flags->tokenizer,
                  "Folder with a tokenizer.json: prompts are sent as text, not as token ids");
  add_workload_flags(verb, flags->workload);
  verb.add_option("--request-rate", flags->request_rate, "Requests per second; inf: all at once")
      ->check(above_zero_or_inf())
      ->capture_default_str();
  verb.add_option("--burstiness", flags->burstiness,
                  "Shape of the gaps between arrivals: 1 is Poisson, below is burstier, above more regular")
      ->check(above_zero_or_inf())
      ->capture_default_str();
  verb.add_option("--ramp-up-strategy", flags->ramp, "The rate grows from request to request")
      ->check(CLI::IsMember({"linear", "exponential"}));
  verb.add_option("--ramp-up-start-rps", flags->ramp_start)->check(above_zero());
  verb.add_option("--ramp-up-end-rps", flags->ramp_end)->check(above_zero());
  verb.add_option("--max-concurrency", flags->max_concurrency,
                  "Limit on concurrent requests; later ones wait in the client")
      ->check(whole_at_least(1, 1 << 20));
  verb.add_option("--num-warmups", flags->num_warmups, "Requests before the measured ones")
      ->check(whole_at_least(0, 1 << 20))
      ->capture_default_str();
  verb.add_flag("--ignore-eos", flags->ignore_eos,
                "Answers run to their length (always so where prompts are random)");
  verb.add_option("--temperature", flags->temperature, "Default: the server's")->check(between(0, 100));
  verb.add_option("--timeout", flags->timeout_s, "Seconds a request may take")
      ->check(above_zero())
      ->capture_default_str();
  verb.add_option("--goodput", flags->goodput, "Goals in ms: ttft:200 tpot:50 e2el:5000");
  verb.add_option("--percentile-metrics", flags->percentile_metrics, "Among ttft,tpot,itl,e2el")
      ->capture_default_str();
  verb.add_option("--metric-percentiles", flags->metric_percentiles, "E.g. 50,95,99")->capture_default_str();
  verb.add_flag("--save-result", flags->save_result, "Write the numbers as JSON");
  verb.add_flag("--save-detailed", flags->save_detailed, "And those of each request");
  verb.add_option("--result-dir", flags->result_dir, "Default: this folder");
  verb.add_option("--result-filename", flags->result_filename,
                  "Default: made of label, load, model and date");
  verb.add_option("--label", flags->label, "Label stored with the result");
  verb.add_option("--sweep", flags->sweep,
                  "Find saturation, then measure at these shares of it, e.g. 0.5,1,1.5")
      ->delimiter(',')
      ->check(above_zero());
  verb.add_option(
          "--sweep-from", flags->sweep_from,
          "Rate the search begins with: near saturation it is shorter (default: 1 / E2EL of a lone request)")
      ->check(above_zero());
  verb.add_option("--sweep-window", flags->sweep_window_s, "Seconds of a trial of the search for saturation")
      ->check(above_zero())
      ->capture_default_str();
  verb.add_option("--heatmap", flags->heatmap,
                  "And measure latency at these prompt lengths, e.g. 128,512,2048")
      ->delimiter(',')
      ->check(whole_at_least(1, 1 << 24));
  verb.add_option("--heatmap-prompts", flags->heatmap_prompts, "Requests of each")
      ->check(whole_at_least(1, 1 << 20))
      ->capture_default_str();
  verb.add_option("--report", flags->report, "Write a page with charts to this file");
  verb.callback([flags, &exit_code] { exit_code = ServeBench(*flags).run(); });
}

}  // namespace fathom::cli
