// fathom bench latency: how fast one sequence is read and answered here, as shares of what the machine
// allows.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/load_flags.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/usage.h"
#include "cli/verbs.h"
#include "core/rng.h"
#include "engine/engine.h"
#include "engine/text_model.h"
#include "machine/ceilings.h"
#include "measure/clock.h"
#include "measure/statistics.h"
#include "model/config.h"

namespace fathom::cli {
namespace {

using nlohmann::json;

struct LatencyFlags {
  std::string model;
  int64_t input_len = 512, output_len = 64, iterations = 5, warmup = 1;
  int threads   = 0;
  uint64_t seed = 1;
  OutputFlags outputs;
};

struct Latency {
  int threads = 0;
  std::vector<double> ttft_s;              // the whole prompt, and the first token's logits
  std::vector<double> tpot_s;              // mean time of a later token, one an iteration
  double prefill_flops = 0;                // of the prompt: dense layers, its own experts, one row of logits
  double decode_bytes  = 0;                // of weights that a token touches
  std::optional<double> dram_bytes_per_s;  // where doctor has measured this machine
  std::optional<double> peak_flops;
};

// 2 flops for each weight that a token meets, attention's own products, and the unembedding once.
double prefill_flops(const model::Config& c, int64_t tokens) {
  const auto f             = model::footprint(c);
  const double unembedding = static_cast<double>(c.vocab_size) * static_cast<double>(c.hidden_size);
  const auto T             = static_cast<double>(tokens);
  double pairs             = 0;  // of a query and a position it sees
  for (const model::Attention kind : c.layers)
    for (int64_t t = 0; t < tokens; ++t)
      pairs +=
          static_cast<double>(kind == model::Attention::full ? t + 1 : std::min(t + 1, c.sliding_window));
  return 2 * T * (static_cast<double>(f.active_parameters) - unembedding) + 2 * unembedding +
         4 * pairs * static_cast<double>(c.num_attention_heads * c.head_dim);
}

Latency measure_latency(const LatencyFlags& flags) {
  auto model                  = value_or_usage_error(engine::TextModel::open(
                       flags.model, {.threads = flags.threads, .max_context = flags.input_len + flags.output_len}));
  const model::Config& config = model.checkpoint().config;
  Latency seen{.threads       = model.threads(),
               .prefill_flops = prefill_flops(config, flags.input_len),
               .decode_bytes  = static_cast<double>(model::footprint(config).bytes_read_by_token)};
  if (const auto ceilings = machine::read_ceilings(machine::ceilings_path())) {
    seen.dram_bytes_per_s =
        machine::median_rate(machine::Level::dram, machine::Traffic::read, seen.threads, *ceilings);
    seen.peak_flops = machine::median_flops(DType::fp32, seen.threads, *ceilings);
  }
  // Tokens at random: a fixed or repeated one would visit the same experts again and again.
  std::vector<int32_t> tokens(static_cast<size_t>(flags.input_len + flags.output_len));
  const auto seconds = [](int64_t from_ns) {
    return static_cast<double>(measure::now_ns(measure::Clock::wall) - from_ns) * 1e-9;
  };
  ProgressDisplay display(stderr, terminal_columns(STDERR_FILENO));
  for (int64_t i = -flags.warmup; i < flags.iterations; ++i) {
    display.show({.experiment = flags.model,
                  .phase      = i < 0 ? "warm up" : "measure",
                  .done       = static_cast<int>(i + flags.warmup),
                  .total      = static_cast<int>(flags.iterations + flags.warmup)});
    fill_integers(tokens.data(), static_cast<int64_t>(tokens.size()), flags.seed + static_cast<uint64_t>(i),
                  0, config.vocab_size);
    model.reset();
    const auto all      = std::span<const int32_t>(tokens);
    const int64_t start = measure::now_ns(measure::Clock::wall);
    model.append(all.first(static_cast<size_t>(flags.input_len)));
    const double ttft         = seconds(start);
    const int64_t first_token = measure::now_ns(measure::Clock::wall);
    for (const int32_t& token : all.subspan(static_cast<size_t>(flags.input_len))) model.append({&token, 1});
    const double decode = seconds(first_token);
    if (i < 0) continue;
    seen.ttft_s.push_back(ttft);
    if (flags.output_len > 0) seen.tpot_s.push_back(decode / static_cast<double>(flags.output_len));
  }
  return seen;
}

struct Summary {
  double median, lowest, highest;
};
Summary summary(std::vector<double> samples) {
  const auto [lowest, highest] = std::minmax_element(samples.begin(), samples.end());
  return {measure::median(samples), *lowest, *highest};
}

json to_json(const LatencyFlags& flags, const Latency& seen) {
  const auto numbers = [](const Summary& s, double factor) {
    return json{{"median", s.median * factor}, {"min", s.lowest * factor}, {"max", s.highest * factor}};
  };
  const Summary ttft    = summary(seen.ttft_s);
  const double achieved = seen.prefill_flops / ttft.median;
  json out              = {{"schema", "fathom.bench_latency/1"},
                           {"model", flags.model},
                           {"threads", seen.threads},
                           {"input_len", flags.input_len},
                           {"output_len", flags.output_len},
                           {"num_iters", flags.iterations},
                           {"ttft_ms", numbers(ttft, 1e3)},
                           {"prefill_tokens_per_s", static_cast<double>(flags.input_len) / ttft.median},
                           {"prefill_flops_per_s", achieved},
                           {"prefill_share_of_peak", nullptr},
                           {"tpot_ms", nullptr},
                           {"decode_tokens_per_s", nullptr},
                           {"decode_weight_bytes_per_s", nullptr},
                           {"decode_share_of_read_bandwidth", nullptr}};
  if (seen.peak_flops) out["prefill_share_of_peak"] = achieved / *seen.peak_flops;
  if (seen.tpot_s.empty()) return out;
  const Summary tpot               = summary(seen.tpot_s);
  const double rate                = seen.decode_bytes / tpot.median;
  out["tpot_ms"]                   = numbers(tpot, 1e3);
  out["decode_tokens_per_s"]       = 1 / tpot.median;
  out["decode_weight_bytes_per_s"] = rate;
  if (seen.dram_bytes_per_s) out["decode_share_of_read_bandwidth"] = rate / *seen.dram_bytes_per_s;
  return out;
}

Table to_table(const LatencyFlags& flags, const Latency& seen) {
  Table table{.columns = {{"step"},
                          {"median", true},
                          {"lowest", true},
                          {"highest", true},
                          {"tokens/s", true},
                          {"rate", true},
                          {"of limit", true}},
              .rows    = {}};
  const auto row = [&](std::string step, const Summary& s, double tokens, std::string rate, double share) {
    table.rows.push_back({std::move(step), fmt::format("{:.2f} ms", s.median * 1e3),
                          fmt::format("{:.2f} ms", s.lowest * 1e3), fmt::format("{:.2f} ms", s.highest * 1e3),
                          fmt::format("{:.4g}", tokens / s.median), std::move(rate),
                          share > 0 ? fmt::format("{:.1f} %", 100 * share) : "unknown"});
  };
  const Summary ttft = summary(seen.ttft_s);
  const double flops = seen.prefill_flops / ttft.median;
  row(fmt::format("prefill of {}", flags.input_len), ttft, static_cast<double>(flags.input_len),
      fmt::format("{:.4g} Gflop/s", flops * 1e-9), seen.peak_flops ? flops / *seen.peak_flops : 0);
  if (!seen.tpot_s.empty()) {
    const Summary tpot = summary(seen.tpot_s);
    const double bytes = seen.decode_bytes / tpot.median;
    row("decode, one token", tpot, 1, fmt::format("{:.4g} GB/s", bytes * 1e-9),
        seen.dram_bytes_per_s ? bytes / *seen.dram_bytes_per_s : 0);
  }
  return table;
}

void print(const LatencyFlags& flags, const Latency& seen) {
  fmt::print("{} on {} threads, one sequence, {} runs\n{}", flags.model, seen.threads, seen.ttft_s.size(),
             to_text(to_table(flags, seen)));
  if (seen.dram_bytes_per_s)
    fmt::print(
        "limits: prefill the {:.4g} Gflop/s of fp32, decode the {:.4g} GB/s read from memory that doctor "
        "measured; a token touches {:.4g} MB of weights\n",
        seen.peak_flops.value_or(0) * 1e-9, *seen.dram_bytes_per_s * 1e-9, seen.decode_bytes * 1e-6);
  else
    fmt::print("limits unknown: `fathom doctor` measures this machine\n");
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<LatencyFlags>();
  CLI::App& verb = *app.add_subcommand("bench", "How fast a model runs here");
  verb.require_subcommand(1);
  CLI::App& latency =
      *verb.add_subcommand("latency", "One sequence: time to the first token, and of each later one");
  latency.add_option("--model", flags->model, "Folder with config.json and *.safetensors")->required();
  latency.add_option("--input-len", flags->input_len, "Tokens of the prompt")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  latency.add_option("--output-len", flags->output_len, "Tokens decoded after it")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  latency.add_option("--num-iters", flags->iterations, "Runs that count")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  latency.add_option("--num-iters-warmup", flags->warmup, "Runs before them")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  latency.add_option("--threads", flags->threads, "0: one for each CPU")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  latency.add_option("--seed", flags->seed, "Of the tokens")->capture_default_str();
  add_output_flags(latency, flags->outputs);
  latency.callback([flags, &exit_code] {
    const Latency seen = measure_latency(*flags);
    const auto table   = [&] { return to_table(*flags, seen); };
    if (!write_outputs(flags->outputs, {[&] { return to_json(*flags, seen); }, table, table}))
      print(*flags, seen);
    exit_code = 0;
  });
  add_bench_serve(verb, exit_code);
  add_bench_throughput(verb, exit_code, [](const std::string& folder, const engine::EngineConfig& config) {
    return value_or_usage_error(engine::Engine::open(folder, config));
  });
}

}  // namespace fathom::cli
