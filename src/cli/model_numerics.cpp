// fathom model numerics: the values that each layer of a forward pass leaves, and where they go wrong.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/engine_flags.h"
#include "cli/model_folder.h"
#include "cli/number_check.h"
#include "cli/output_flags.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/cpus.h"
#include "core/exit_code.h"
#include "engine/kv_format.h"
#include "model/kv_rounding.h"
#include "model/numerics.h"

namespace fathom::cli {
namespace {

using model::OpNumerics;
using nlohmann::json;

constexpr double kLargestFp16 = 65504;

struct NumericsFlags {
  std::string folder, prompt = "What is 1234 + 5678?";
  std::string kv_dtype = "auto", activation_dtype = "auto";
  bool reference = false, all_ops = false;
  int threads = host_threads();
  OutputFlags outputs;
};

struct Trace {
  std::vector<OpNumerics> ops;
  int64_t tokens = 0, layers = 0;
  std::string reference;  // what errors are against; empty: no errors

  // The first op that left a value that is not finite; its inputs were finite.
  const OpNumerics* first_not_finite() const {
    const auto found = std::find_if(ops.begin(), ops.end(), [](const auto& op) { return op.not_finite > 0; });
    return found == ops.end() ? nullptr : &*found;
  }
  std::string place(const OpNumerics& op) const {
    if (op.layer < 0 || op.layer == layers) return std::string(op.op);
    return fmt::format("{} of layer {}", op.op, op.layer);
  }
};

std::vector<model::TokenId> tokens_of(const model::Checkpoint& checkpoint, const std::string& prompt) {
  std::vector<model::TokenId> tokens;
  if (checkpoint.tokenizer) {
    tokens = value_or_usage_error(checkpoint.tokenizer->encode(prompt));
  } else {  // any will do: a model of random weights has no words
    for (model::TokenId id = 0; id < std::min<int64_t>(16, checkpoint.config.vocab_size); ++id)
      tokens.push_back(id);
  }
  if (tokens.empty()) throw UsageError("--prompt is empty: give it a few words");
  if (std::ssize(tokens) > model::kMostNumericsTokens) {
    fmt::print(stderr, "the first {} of the prompt's {} tokens are taken\n", model::kMostNumericsTokens,
               tokens.size());
    tokens.resize(static_cast<size_t>(model::kMostNumericsTokens));
  }
  return tokens;
}

Trace trace(const NumericsFlags& flags) {
  const model::Checkpoint checkpoint = open_checkpoint(flags.folder);
  const auto tokens                  = tokens_of(checkpoint, flags.prompt);
  engine::EngineConfig config;
  config.kv_dtype      = kv_dtypes().at(flags.kv_dtype);
  const bool rounds_kv = config.kv_dtype != engine::EngineConfig::KvDtype::automatic;
  const bool rounds_experts =
      activation_dtypes().at(flags.activation_dtype) == engine::EngineConfig::ActivationDtype::int8;
  model::Ops ops = rounds_kv ? model::cpu_ops_rounding_kv(engine::kv_format_of(config)) : model::cpu_ops();
  if (rounds_experts) ops = model::with_int8_activations(ops);

  Trace seen{.ops       = {},
             .tokens    = std::ssize(tokens),
             .layers    = checkpoint.config.num_hidden_layers,
             .reference = flags.reference               ? "the reference ops in plain C++"
                          : rounds_kv || rounds_experts ? "the same pass in fp32"
                                                        : ""};
  const model::Ops* reference = flags.reference          ? &model::reference_ops()
                                : seen.reference.empty() ? nullptr
                                                         : &model::cpu_ops();
  ThreadPool threads(flags.threads);
  seen.ops = model::trace_numerics(checkpoint, tokens, ops, reference, threads);
  return seen;
}

Table to_table(const Trace& seen, bool all_ops) {
  Table table{.columns = {{"layer", true}, {"after"}, {"largest", true}, {"rms", true}, {"not finite", true}},
              .rows    = {}};
  if (!seen.reference.empty()) table.columns.push_back({"error", true});
  for (const OpNumerics& op : seen.ops) {
    const bool at_the_end = op.layer == seen.layers;
    if (!all_ops && !op.residual && !at_the_end && op.not_finite == 0) continue;
    auto& row = table.rows.emplace_back(std::vector<std::string>{
        op.layer < 0 || at_the_end ? "" : std::to_string(op.layer), std::string(op.op),
        fmt::format("{:.4g}", op.largest), fmt::format("{:.4g}", op.rms),
        op.not_finite == 0 ? "0" : fmt::format("{} of {}", op.not_finite, op.values)});
    if (!seen.reference.empty()) row.push_back(fmt::format("{:.2g}", op.reference_error));
  }
  return table;
}

json to_json(const Trace& seen) {
  json ops = json::array();
  for (const OpNumerics& op : seen.ops) {
    json entry = {{"layer", op.layer},     {"after", op.op}, {"values", op.values},
                  {"largest", op.largest}, {"rms", op.rms},  {"not_finite", op.not_finite}};
    if (!seen.reference.empty()) entry["error"] = op.reference_error;
    ops.push_back(std::move(entry));
  }
  return {{"schema", "fathom.numerics/1"},
          {"tokens", seen.tokens},
          {"reference", seen.reference.empty() ? json() : json(seen.reference)},
          {"ops", ops}};
}

// The step of the residual stream at which its error grew most.
std::string largest_step(const Trace& seen) {
  const OpNumerics *before = nullptr, *from = nullptr, *to = nullptr;
  for (const OpNumerics& op : seen.ops) {
    if (!op.residual) continue;
    if (before &&
        (!to || op.reference_error - before->reference_error > to->reference_error - from->reference_error))
      from = before, to = &op;
    before = &op;
  }
  if (!to || to->reference_error <= from->reference_error) return "";
  return fmt::format(" It grows most from {:.2g} to {:.2g}, in the {}.", from->reference_error,
                     to->reference_error, seen.place(*to));
}

void print(const Trace& seen, bool all_ops) {
  fmt::print("{}\n", to_text(to_table(seen, all_ops)));
  if (const OpNumerics* bad = seen.first_not_finite()) {
    fmt::print("The first values that are not finite: {} of {}, in the {}. Its inputs were finite.\n",
               bad->not_finite, bad->values, seen.place(*bad));
    return;
  }
  const auto largest = std::max_element(seen.ops.begin(), seen.ops.end(),
                                        [](const auto& a, const auto& b) { return a.largest < b.largest; });
  fmt::print("All values are finite. The largest is {:.4g}, in the {}{}.\n", largest->largest,
             seen.place(*largest),
             largest->largest > kLargestFp16
                 ? "; FP16 would overflow (65,504)"
                 : fmt::format("; FP16 overflows at {:.3g} times that", kLargestFp16 / largest->largest));
  if (!seen.reference.empty())
    fmt::print("The error of the logits is {:.2g} of their rms, against {}.{}\n",
               seen.ops.back().reference_error, seen.reference, largest_step(seen));
}

}  // namespace

void add_model_numerics(CLI::App& model_verb, int& exit_code) {
  auto flags     = std::make_shared<NumericsFlags>();
  CLI::App& verb = *model_verb.add_subcommand(
      "numerics", "Where a forward pass becomes infinite or NaN, or its error grows, layer by layer");
  verb.add_option("folder", flags->folder, "With config.json and *.safetensors")->required();
  verb.add_option("--prompt", flags->prompt, "The text that goes through the model")->capture_default_str();
  verb.add_option("--kv-cache-dtype", flags->kv_dtype,
                  "Round keys and values as this cache does; errors show")
      ->check(CLI::IsMember(kv_dtypes()))
      ->capture_default_str();
  verb.add_option("--activation-dtype", flags->activation_dtype,
                  "int8: round the inputs of quantized weights; errors show")
      ->check(CLI::IsMember(activation_dtypes()))
      ->capture_default_str();
  verb.add_flag("--reference", flags->reference,
                "Errors against the reference ops, one thread of plain C++: slow for a large model");
  verb.add_flag("--all-ops", flags->all_ops, "A line for each op, not for the residual stream alone");
  verb.add_option("--threads", flags->threads, "Threads of the pass")
      ->check(whole_at_least(1, 1024))
      ->capture_default_str();
  add_output_flags(verb, flags->outputs);
  verb.callback([flags, &exit_code] {
    const Trace seen = trace(*flags);
    const auto table = [&] { return to_table(seen, flags->all_ops); };
    if (!write_outputs(flags->outputs, {[&] { return to_json(seen); }, table, table}))
      print(seen, flags->all_ops);
    exit_code = seen.first_not_finite() ? kExitWrongOutput : kExitOk;
  });
}

}  // namespace fathom::cli
