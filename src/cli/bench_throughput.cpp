// fathom bench throughput: tokens per second when all requests are submitted at once, by the definitions of
// `vllm bench throughput`.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench_flags.h"
#include "cli/ctrl_c.h"
#include "cli/engine_flags.h"
#include "cli/engine_report.h"
#include "cli/model_folder.h"
#include "cli/step_log.h"
#include "cli/usage_error.h"
#include "core/atomic_file.h"
#include "core/exit_code.h"
#include "lab/json_text.h"
#include "lab/record.h"
#include "load/run.h"
#include "model/tokenizer.h"

namespace fathom::cli {
namespace {

using nlohmann::json;

struct ThroughputFlags {
  std::string model, output_json, step_log;
  WorkloadFlags workload;
  EngineFlags engine;
};

std::vector<load::Request> requests_of(const ThroughputFlags& flags, const std::string& folder) {
  auto requests = value_or_usage_error(load::make_workload(
      workload_spec(flags.workload), workload_count(flags.workload), flags.workload.seed));
  if (std::any_of(requests.begin(), requests.end(), [](const auto& r) { return !r.text.empty(); })) {
    const auto tokenizer = value_or_usage_error(
        model::Tokenizer::load((std::filesystem::path(folder) / "tokenizer.json").string()));
    value_or_usage_error(load::write_as_ids(requests, tokenizer));
  }
  return requests;
}

// What vLLM's numbers lack.
json engine_metrics(const load::Summary& sum, const engine::GeneratorStats& stats) {
  json out = engine_report_json(stats);
  for (const auto& [name, times] : {std::pair("ttft", &sum.ttft), {"tpot", &sum.tpot}, {"e2el", &sum.e2el}})
    for (const int p : {50, 95, 99}) {
      const auto seconds                     = times->percentile(p);
      out[fmt::format("p{}_{}_ms", p, name)] = seconds ? json(*seconds * 1e3) : json();
    }
  return out;
}

void print(const load::Summary& sum, const engine::GeneratorStats& stats) {
  fmt::print("Throughput: {:.2f} requests/s, {:.2f} total tokens/s, {:.2f} output tokens/s\n",
             sum.request_throughput, sum.total_token_throughput, sum.output_throughput);
  fmt::print("Total num prompt tokens:  {}\nTotal num output tokens:  {}\n", sum.input_tokens,
             sum.output_tokens);
  const auto times = [](const char* name, const load::Distribution& of) {
    if (of.count() > 0)
      fmt::print("{}: median {:.2f} ms, p95 {:.2f} ms\n", name, *of.percentile(50) * 1e3,
                 *of.percentile(95) * 1e3);
  };
  times("TTFT", sum.ttft);
  times("TPOT", sum.tpot);
  times("E2EL", sum.e2el);
  fmt::print("{}", engine_report_text(stats));
}

int throughput(const ThroughputFlags& flags, const EngineFactory& make_engine) {
  const std::string folder = model_folder(flags.model).string();
  const auto requests      = requests_of(flags, folder);
  auto config              = flags.engine.chosen();
  // The queue holds the whole workload: no request is rejected.
  config.max_queued_requests = static_cast<int64_t>(requests.size());
  config.max_queued_tokens   = 0;
  for (const auto& request : requests) {
    config.max_queued_tokens += request.input_tokens;
    config.max_context = std::max(config.max_context, request.input_tokens + request.output_tokens);
  }
  if (!config.gpu) config.kv_tokens = std::max(config.kv_tokens, config.max_context);
  StepLog steps;
  if (!flags.step_log.empty()) config.on_step = steps.listener();
  const auto engine = make_engine(folder, config);
  const auto target = load::engine_target(*engine, {});

  const CtrlC interruption;
  ProgressDisplay display(stderr, terminal_columns(STDERR_FILENO));
  const std::vector<double> now(requests.size(), 0.0);
  const auto run = load::run(*target, requests, now, load_options(display, folder, 0));
  display.clear();
  const auto sum       = load::summarize(run.requests, run.duration_s);
  const auto stats     = engine->stats();
  const int64_t tokens = sum.input_tokens + sum.output_tokens;
  if (run.interrupted)
    fmt::print(stderr, "Interrupted: the numbers are of what had been answered by then.\n");
  if (sum.failed > 0) fmt::print(stderr, "{} requests failed; the first: {}\n", sum.failed, sum.first_error);
  print(sum, stats);
  json totals = {{"elapsed_time", sum.duration_s},
                 {"num_requests", sum.completed},
                 {"failed", sum.failed},
                 {"unfinished", sum.unfinished},
                 {"total_num_tokens", tokens},
                 {"total_num_prompt_tokens", sum.input_tokens},
                 {"total_num_output_tokens", sum.output_tokens},
                 {"requests_per_second", sum.request_throughput},
                 {"tokens_per_second", sum.total_token_throughput},
                 {"output_tokens_per_second", sum.output_throughput}};
  totals.update(engine_metrics(sum, stats));
  if (!flags.output_json.empty()) write_file_atomically(flags.output_json, lab::json_text(totals));
  if (!flags.step_log.empty())
    write_file_atomically(flags.step_log, lab::json_text({{"schema", "fathom.steps/1"},
                                                          {"model", folder},
                                                          {"totals", std::move(totals)},
                                                          {"steps", steps.to_json()}}));
  return sum.completed > 0 ? kExitOk : kExitInvalid;
}

}  // namespace

void add_bench_throughput(CLI::App& bench, int& exit_code, EngineFactory make_engine) {
  auto flags = std::make_shared<ThroughputFlags>();
  CLI::App& verb =
      *bench.add_subcommand("throughput", "Requests all at once, in process, as vllm bench throughput");
  verb.add_option("--model", flags->model,
                  "Folder with config.json and *.safetensors (default: the bundled model)");
  add_workload_flags(verb, flags->workload);
  add_engine_flags(verb, flags->engine);
  verb.add_option("--output-json", flags->output_json, "Write the numbers to this file");
  verb.add_option("--step-log", flags->step_log,
                  "Write them and every step to this file: its rows, times and router imbalance");
  verb.callback([flags, make_engine = std::move(make_engine), &exit_code] {
    exit_code = throughput(*flags, make_engine);
  });
}

}  // namespace fathom::cli
