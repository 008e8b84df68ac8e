// fathom bench latency: prefill and decode speed of one batch of prompts, as shares of the machine's limits.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench_flags.h"
#include "cli/engine_flags.h"
#include "cli/engine_report.h"
#include "cli/model_folder.h"
#include "cli/number_check.h"
#include "cli/output_flags.h"
#include "cli/progress.h"
#include "cli/run_folder.h"
#include "cli/timed_batch.h"
#include "cli/usage_error.h"
#include "core/exit_code.h"
#include "core/utc_time.h"
#include "engine/engine.h"
#include "engine/kv_format.h"
#include "engine/resolve_config.h"
#include "kernels/gemm/packed_weights.h"
#include "machine/ceilings.h"
#include "machine/gpu_ceilings.h"
#include "measure/statistics.h"
#include "model/config.h"
#include "model/gpu_kv_cache.h"
#include "profile/activity.h"
#include "profile/step_table.h"
#include "profile/timeline.h"

namespace fathom::cli {
namespace {

using engine::TimePoint;
using nlohmann::json;

struct LatencyFlags {
  std::string model;
  std::vector<int64_t> batches = {1};
  int64_t input_len = 512, output_len = 64, iterations = 5, warmup = 1;
  uint64_t seed = 1;
  bool profile  = false;
  EngineFlags engine;
  OutputFlags outputs;

  BatchShape shape(int64_t batch) const {
    return {.batch = batch, .input_len = input_len, .output_len = output_len};
  }
};

// A run under the profiler; it does not count in the times.
struct ProfiledBatch {
  profile::BatchSteps steps;
  BatchTimes run;
  std::string trace;  // a file
  std::vector<std::string> notes;
};

// One batch size, over the counted runs.
struct BatchLatency {
  int64_t batch = 1;
  std::vector<double> ttft_s;  // until every prompt has its first token
  std::vector<double> tpot_s;  // of a decode step for the whole batch
  double prefill_flops = 0;    // of the batch: dense layers, routed experts, one row of logits a prompt
  double step_bytes    = 0;    // weights, keys and values that a step reads, if routing is uniform
  std::optional<ProfiledBatch> profiled;
};

struct Latency {
  std::string where;
  std::vector<BatchLatency> batches;
  engine::GeneratorStats stats;            // of all of them
  std::optional<double> read_bytes_per_s;  // of one GPU; absent until doctor has measured this machine
  std::optional<double> peak_flops;
  int64_t gpus = 1;

  // Of the limits of all GPUs together; absent where they are unknown.
  std::optional<double> share_of_peak(double flops_per_s) const { return share(flops_per_s, peak_flops); }
  std::optional<double> share_of_reading(double bytes_per_s) const {
    return share(bytes_per_s, read_bytes_per_s);
  }

 private:
  std::optional<double> share(double rate, const std::optional<double>& of_one) const {
    if (!of_one) return {};
    return rate / (static_cast<double>(gpus) * *of_one);
  }
};

// 2 flops for each weight that a token uses, the products of attention, and the unembedding once.
double prefill_flops(const model::Config& c, int64_t tokens) {
  const auto f             = model::footprint(c);
  const double unembedding = static_cast<double>(c.vocab_size) * static_cast<double>(c.hidden_size);
  const auto T             = static_cast<double>(tokens);
  double pairs             = 0;  // (query, key) pairs that attention computes
  for (const model::Attention kind : c.layers)
    for (int64_t t = 0; t < tokens; ++t)
      pairs +=
          static_cast<double>(kind == model::Attention::full ? t + 1 : std::min(t + 1, c.sliding_window));
  return 2 * T * (static_cast<double>(f.active_parameters) - unembedding) + 2 * unembedding +
         4 * pairs * static_cast<double>(c.num_attention_heads * c.head_dim);
}

// Bytes of an element of the KV cache of such a layer, including its share of a scale.
double kv_element_bytes(const engine::EngineConfig& config, model::Attention kind) {
  if (!config.gpu) return 4;
  return static_cast<double>(model::kv_position_bytes(kind, engine::kv_format_of(config))) /
         (2 * kernels::kHeadDim);
}

// Bytes that a step for `batch` sequences of `context` tokens reads: all weights outside the experts, the
// expected number of distinct experts under uniform routing, and keys and values.
double step_bytes(const model::Config& c, int64_t batch, int64_t context,
                  const engine::EngineConfig& config) {
  const auto f       = model::footprint(c);
  const auto L       = static_cast<double>(c.num_hidden_layers);
  const auto E       = static_cast<double>(c.num_local_experts);
  const auto chosen  = static_cast<double>(c.num_experts_per_tok);
  const double one   = static_cast<double>(f.expert_bytes) * L;
  const double hit   = E * (1 - std::pow(1 - chosen / E, static_cast<double>(batch)));
  const double dense = static_cast<double>(f.bytes_read_by_token) - chosen * one;
  const auto of_bf16 = [&](model::Attention kind) { return kv_element_bytes(config, kind) / 2; };
  const double kv    = static_cast<double>(f.kv_bytes_per_token * context) * of_bf16(model::Attention::full) +
                    static_cast<double>(f.kv_window_bytes) * of_bf16(model::Attention::sliding);
  // The unembedding is in bf16, and its copy in int8, on CPUs with a scale for each 32.
  const bool screens =
      batch * (1 + config.draft_tokens) <= kernels::kMaxGemvRows && engine::has_screening(c, config);
  const double of_element = config.gpu ? 1 : 2 - 34.0 / 32;
  const double unread     = screens ? of_element * static_cast<double>(c.vocab_size * c.hidden_size) : 0;
  return dense - unread + hit * one + static_cast<double>(batch) * kv;
}

std::unique_ptr<engine::Engine> latency_engine(const LatencyFlags& flags, ProgressDisplay& display) {
  const std::string folder = model_folder(flags.model).string();
  auto config              = flags.engine.chosen();
  config.max_context       = flags.input_len + flags.output_len + 1;
  config.max_sequences     = *std::max_element(flags.batches.begin(), flags.batches.end());
  config.prefix_cache      = false;
  const int64_t tokens     = config.max_sequences * (config.max_context + config.page_size);
  if (!config.gpu) config.kv_tokens = std::max(config.kv_tokens, tokens);
  config.max_queued_requests = config.max_sequences;
  config.max_queued_tokens   = tokens;
  config.loading             = loading_on(display, folder);
  return open_engine(folder, config);
}

Latency measure_latency(const LatencyFlags& flags) {
  ProgressDisplay display(stderr, terminal_columns(STDERR_FILENO));
  const auto engine         = latency_engine(flags, display);
  const bool gpu            = engine->config().gpu;
  const model::Config model = engine->checkpoint().config;

  Latency seen{.where = engine->device_name()};
  if (gpu) {
    seen.gpus = engine->config().tensor_parallel;
    try {
      const auto& known = machine::gpu_ceilings(machine::Refresh::never, engine->config().device);
      seen.read_bytes_per_s =
          machine::gpu_median_rate(machine::GpuLevel::dram, machine::Traffic::read, known);
      seen.peak_flops = machine::gpu_median_flops(DType::bf16, true, known);
    } catch (const std::exception&) {  // not measured yet
    }
  } else if (const auto ceilings = machine::read_ceilings(machine::ceilings_path())) {
    seen.read_bytes_per_s =
        machine::median_rate(machine::Level::dram, machine::Traffic::read, engine->threads(), *ceilings);
    // Of matrices that multiply integers, no ceiling is measured.
    if (engine->config().activation_dtype == engine::EngineConfig::ActivationDtype::automatic)
      seen.peak_flops = machine::median_flops(DType::fp32, engine->threads(), *ceilings);
  }
  for (const int64_t batch : flags.batches) {
    BatchLatency& now = seen.batches.emplace_back();
    now.batch         = batch;
    now.prefill_flops = static_cast<double>(batch) * prefill_flops(model, flags.input_len);
    now.step_bytes    = step_bytes(model, batch, flags.input_len + flags.output_len / 2, engine->config());
    for (int64_t i = -flags.warmup; i < flags.iterations; ++i) {
      display.show({.experiment = fmt::format("batch of {}", batch),
                    .phase      = i < 0 ? "warm up" : "measure",
                    .done       = static_cast<int>(i + flags.warmup),
                    .total      = static_cast<int>(flags.iterations + flags.warmup)});
      const BatchTimes run = time_batch(*engine, flags.shape(batch), flags.seed + static_cast<uint64_t>(i));
      if (i < 0) continue;
      now.ttft_s.push_back(run.ttft_s());
      if (flags.output_len > 0) now.tpot_s.push_back(run.tpot_s());
    }
  }
  display.clear();
  seen.stats = engine->stats();
  return seen;
}

// The mean cost of `count` steps, op by op.
std::vector<profile::DeclaredCost> declared(std::span<const engine::StepCosts> steps, int64_t count) {
  std::vector<model::KernelCost> sum;
  for (const engine::StepCosts& step : steps) model::add_costs(sum, step.kernels);
  std::vector<profile::DeclaredCost> mean;
  const auto n = static_cast<double>(count);
  for (const model::KernelCost& one : sum)
    mean.push_back({.kernel   = one.kernel,
                    .instance = one.instance,
                    .launches = static_cast<double>(one.launches) / n,
                    .bytes    = one.cost.bytes() / n,
                    .flops    = one.cost.flops / n,
                    .expected = one.expected});
  return mean;
}

// Prefill is every step of the run up to the last with rows of prompts; decoding is the steps after it.
void add_costs(profile::BatchSteps& to, std::span<const engine::StepCosts> recorded, TimePoint start) {
  const auto begin = std::find_if(recorded.begin(), recorded.end(),
                                  [&](const engine::StepCosts& step) { return step.launched >= start; });
  auto decode      = recorded.end();
  while (decode > begin && !(decode - 1)->prompts) --decode;
  profile::add_costs(to.prefill, declared({begin, decode}, 1));
  if (to.decode.steps > 0 && recorded.end() - decode >= to.decode.steps)
    profile::add_costs(to.decode, declared({decode, decode + to.decode.steps}, to.decode.steps));
}

// Profiles one more run of each batch, on an engine of its own. CUPTI's activity tracing slows launches for
// the rest of the process, so it comes after all timing; and it sees a graph's kernels only if the graph is
// captured after tracing began. Returns an error where tracing is not available.
Status profile_latency(const LatencyFlags& flags, Latency& seen) {
  const auto watch = profile::ActivityWatch::open();
  if (!watch) return watch.error();
  const std::string folder = make_run_folder("artifacts", utc_now(), "bench_latency");
  ProgressDisplay display(stderr, terminal_columns(STDERR_FILENO));
  const auto engine = latency_engine(flags, display);
  for (BatchLatency& now : seen.batches) {
    display.show({.experiment = fmt::format("batch of {}", now.batch),
                  .phase      = "profile",
                  .done       = static_cast<int>(&now - seen.batches.data()),
                  .total      = static_cast<int>(seen.batches.size())});
    const BatchShape shape = flags.shape(now.batch);
    time_batch(*engine, shape, flags.seed - 1);  // captures the graphs that are still missing
    ProfiledBatch& profiled = now.profiled.emplace();
    TimePoint called;
    std::vector<engine::StepCosts> costs;
    engine->record_costs(&costs);
    const profile::Activity activity = (*watch)->watch([&] {
      called       = std::chrono::steady_clock::now();
      profiled.run = time_batch(*engine, shape, flags.seed);
    });
    const auto at                    = [&](TimePoint time) {
      return activity.start_ns + std::chrono::nanoseconds(time - called).count();
    };
    // Of several ranks the table is that of the first, and the trace has all.
    profiled.steps =
        profile::batch_steps(profile::on_gpu(activity, flags.engine.chosen().device.ordinal),
                             at(profiled.run.start), at(profiled.run.begun), at(profiled.run.last));
    engine->record_costs(nullptr);
    add_costs(profiled.steps, costs, profiled.run.start);
    profiled.notes = activity.notes;
    for (const auto* table : {&profiled.steps.prefill, &profiled.steps.decode})
      profiled.notes.insert(profiled.notes.end(), table->notes.begin(), table->notes.end());
    if (profiled.steps.decode.steps != profiled.run.steps)
      profiled.notes.push_back(fmt::format(
          "{} steps of decoding were seen on the GPU, in which the host counted {} tokens of a sequence",
          profiled.steps.decode.steps, profiled.run.steps));
    profiled.trace = fmt::format("{}/trace_batch={}.json", folder, now.batch);
    profile::timeline(activity, fmt::format("{} prompts of {} tokens", now.batch, flags.input_len))
        .write(profiled.trace);
  }
  return Ok{};
}

struct LatencySummary {
  double median, lowest, highest;
};
LatencySummary summary(std::vector<double> samples) {
  const auto [lowest, highest] = std::minmax_element(samples.begin(), samples.end());
  return {measure::median(samples), *lowest, *highest};
}

json to_json(const LatencyFlags& flags, const Latency& seen) {
  const auto numbers = [](const LatencySummary& s, double factor) {
    return json{{"median", s.median * factor}, {"min", s.lowest * factor}, {"max", s.highest * factor}};
  };
  json batches = json::array();
  for (const BatchLatency& now : seen.batches) {
    const LatencySummary ttft = summary(now.ttft_s);
    const double flops        = now.prefill_flops / ttft.median;
    const double tokens       = static_cast<double>(now.batch * flags.input_len);
    json out                  = {{"batch_size", now.batch},
                                 {"ttft_ms", numbers(ttft, 1e3)},
                                 {"prefill_tokens_per_s", tokens / ttft.median},
                                 {"prefill_flops_per_s", flops},
                                 {"prefill_share_of_peak", nullptr},
                                 {"tpot_ms", nullptr},
                                 {"decode_tokens_per_s", nullptr},
                                 {"decode_bytes_per_s", nullptr},
                                 {"decode_share_of_read_bandwidth", nullptr},
                                 {"profile", nullptr}};
    if (const auto share = seen.share_of_peak(flops)) out["prefill_share_of_peak"] = *share;
    if (!now.tpot_s.empty()) {
      const LatencySummary tpot  = summary(now.tpot_s);
      const double rate          = now.step_bytes / tpot.median;
      out["tpot_ms"]             = numbers(tpot, 1e3);
      out["decode_tokens_per_s"] = static_cast<double>(now.batch) / tpot.median;
      out["decode_bytes_per_s"]  = rate;
      if (const auto share = seen.share_of_reading(rate)) out["decode_share_of_read_bandwidth"] = *share;
    }
    if (now.profiled)
      out["profile"] = {{"prefill", profile::to_json(now.profiled->steps.prefill)},
                        {"decode", profile::to_json(now.profiled->steps.decode)},
                        {"trace", now.profiled->trace},
                        {"notes", now.profiled->notes}};
    batches.push_back(std::move(out));
  }
  json out = {
      {"schema", "fathom.bench_latency/2"}, {"model", flags.model},           {"where", seen.where},
      {"input_len", flags.input_len},       {"output_len", flags.output_len}, {"num_iters", flags.iterations},
      {"batches", std::move(batches)}};
  out.update(engine_report_json(seen.stats));
  return out;
}

Table to_table(const LatencyFlags& flags, const Latency& seen) {
  Table table{.columns = {{"batch", true},
                          {"step"},
                          {"median", true},
                          {"lowest", true},
                          {"highest", true},
                          {"tokens/s", true},
                          {"rate", true},
                          {"of limit", true}},
              .rows    = {}};
  const auto row = [&](int64_t batch, std::string step, const LatencySummary& s, double tokens,
                       std::string rate, double share) {
    table.rows.push_back({std::to_string(batch), std::move(step), fmt::format("{:.2f} ms", s.median * 1e3),
                          fmt::format("{:.2f} ms", s.lowest * 1e3), fmt::format("{:.2f} ms", s.highest * 1e3),
                          fmt::format("{:.4g}", tokens / s.median), std::move(rate),
                          share > 0 ? fmt::format("{:.1f} %", 100 * share) : "unknown"});
  };
  for (const BatchLatency& now : seen.batches) {
    const LatencySummary ttft = summary(now.ttft_s);
    const double flops        = now.prefill_flops / ttft.median;
    row(now.batch, fmt::format("prefill of {}", flags.input_len), ttft,
        static_cast<double>(now.batch * flags.input_len), fmt::format("{:.4g} GFLOP/s", flops * 1e-9),
        seen.share_of_peak(flops).value_or(0));
    if (now.tpot_s.empty()) continue;
    const LatencySummary tpot = summary(now.tpot_s);
    const double bytes        = now.step_bytes / tpot.median;
    row(now.batch, "decode, one step", tpot, static_cast<double>(now.batch),
        fmt::format("{:.4g} GB/s", bytes * 1e-9), seen.share_of_reading(bytes).value_or(0));
  }
  return table;
}

void print_steps(const std::string& what, const profile::StepTable& steps, const profile::StepLimits& limits,
                 double with_s, double without_s) {
  if (steps.steps == 0) return;
  fmt::print("\n{}: {:.2f} ms with the profiler attached, {:.2f} ms without\n", what, with_s * 1e3,
             without_s * 1e3);
  const auto cells = profile::cells(steps, limits);
  Table table{.columns = {}, .rows = {cells.begin() + 1, cells.end()}};
  for (const std::string& name : cells.front()) table.columns.push_back({name, !table.columns.empty()});
  fmt::print("{}", to_text(table));
}

void print_profiles(const LatencyFlags& flags, const Latency& seen) {
  const profile::StepLimits limits{.read_bytes_per_s = seen.read_bytes_per_s, .flops_per_s = seen.peak_flops};
  for (const BatchLatency& now : seen.batches) {
    if (!now.profiled) return;
    const ProfiledBatch& profiled = *now.profiled;
    print_steps(fmt::format("prefill of {} x {}", now.batch, flags.input_len), profiled.steps.prefill, limits,
                profiled.run.ttft_s(), measure::median(now.ttft_s));
    if (!now.tpot_s.empty())
      print_steps(
          fmt::format("one step of decoding {}, the mean of {}", now.batch, profiled.steps.decode.steps),
          profiled.steps.decode, limits, profiled.run.tpot_s(), measure::median(now.tpot_s));
    for (const std::string& note : profiled.notes) fmt::print("{}\n", note);
  }
  fmt::print(
      "\nWhere a kernel began before the one before it had ended, its time counts from that end: rows add "
      "up.\nMB are those that the kernels' launchers declare; ~ stands before those of the experts that "
      "random "
      "routing hits on average.\n");
}

void print(const LatencyFlags& flags, const Latency& seen) {
  fmt::print("{} on {}, {} runs each\n{}", model_folder(flags.model).string(), seen.where, flags.iterations,
             to_text(to_table(flags, seen)));
  if (seen.read_bytes_per_s)
    fmt::print(
        "limits{}: {}decode the {:.4g} GB/s read from memory that doctor measured; a step of {} touches "
        "{:.4g} MB\n",
        seen.gpus > 1 ? fmt::format(" of each of {} GPUs", seen.gpus) : "",
        seen.peak_flops ? fmt::format("prefill {:.4g} GFLOP/s, ", *seen.peak_flops * 1e-9) : "",
        *seen.read_bytes_per_s * 1e-9, seen.batches.front().batch, seen.batches.front().step_bytes * 1e-6);
  else
    fmt::print("limits unknown: `fathom doctor` measures this machine\n");
  fmt::print("{}", engine_report_text(seen.stats));
  print_profiles(flags, seen);
}

}  // namespace

void add_bench_latency(CLI::App& bench, int& exit_code) {
  auto flags        = std::make_shared<LatencyFlags>();
  CLI::App& latency = *bench.add_subcommand(
      "latency", "A batch of prompts at once: time to the first token, and of each later one");
  latency.add_option("--model", flags->model,
                     "Folder with config.json and *.safetensors (default: the bundled model)");
  const auto number = [&](const char* name, auto& value, const char* help, int64_t least) {
    latency.add_option(name, value, help)
        ->check(whole_at_least(least, int64_t{1} << 20))
        ->capture_default_str();
  };
  number("--input-len", flags->input_len, "Tokens of a prompt", 1);
  number("--output-len", flags->output_len, "Tokens decoded after the first", 0);
  latency
      .add_option("--batch-size", flags->batches, "Sequences at once; several: one after the other, 1,8,64")
      ->delimiter(',')
      ->check(whole_between(1, 4096))
      ->capture_default_str();
  number("--num-iters", flags->iterations, "Timed runs", 1);
  number("--num-iters-warmup", flags->warmup, "Warm-up runs", 0);
  latency.add_option("--seed", flags->seed, "Seed of the random tokens")->capture_default_str();
  latency.add_flag(
      "--profile", flags->profile,
      "Look at one more run on the GPU in an untimed pass: the kernels of a step, and a trace into "
      "artifacts/");
  add_engine_flags(latency, flags->engine);
  add_output_flags(latency, flags->outputs);
  latency.callback([flags, &exit_code] {
    if (flags->profile && !flags->engine.chosen().gpu)
      throw UsageError("--profile looks at kernels on a GPU: give --device cuda");
    Latency seen          = measure_latency(*flags);
    const Status profiled = flags->profile ? profile_latency(*flags, seen) : Ok{};
    const auto table      = [&] { return to_table(*flags, seen); };
    if (!write_outputs(flags->outputs, {[&] { return to_json(*flags, seen); }, table, table}))
      print(*flags, seen);
    if (!profiled) throw UsageError("no profile: " + profiled.error().message);
    for (const BatchLatency& now : seen.batches)
      if (now.profiled) fmt::print(stderr, "trace: {}\n", now.profiled->trace);
    exit_code = kExitOk;
  });
}

}  // namespace fathom::cli
