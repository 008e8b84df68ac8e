// fathom model: facts about a checkpoint and the cost of running it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/decode_roof.h"
#include "cli/output_flags.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/dtype.h"
#include "core/exit_code.h"
#include "model/config.h"
#include "model/safetensors.h"
#include "model/weights.h"

namespace fathom::cli {
namespace {

using nlohmann::json;

struct InspectFlags {
  std::string folder;
  OutputFlags outputs;
};

struct Inspected {
  model::Config config;
  model::Footprint footprint;
  model::Safetensors checkpoint;
  model::Layout layout           = model::Layout::hf_mxfp4;
  std::optional<DecodeRoof> roof = {};  // absent until doctor has measured this machine

  const model::TensorMap& tensors() const { return checkpoint.tensors(); }
};

Inspected inspect(const std::filesystem::path& folder) {
  const model::Config config = value_or_usage_error(model::read_config(folder / "config.json"));
  Inspected seen{.config     = config,
                 .footprint  = model::footprint(config),
                 .checkpoint = value_or_usage_error(model::Safetensors::open(folder))};
  seen.layout = value_or_usage_error(model::find_layout(config, seen.checkpoint));
  seen.roof   = decode_roof(seen.footprint);
  return seen;
}

std::string shape_text(const model::Tensor& tensor) {
  std::string text;
  for (const int64_t extent : tensor.shape) text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return text;
}

Table tensor_table(const Inspected& seen) {
  Table table{.columns = {{"tensor"}, {"dtype"}, {"shape"}, {"bytes", true}}, .rows = {}};
  for (const auto& [name, tensor] : seen.tensors())
    table.rows.push_back({name, std::string(traits(tensor.dtype).name), shape_text(tensor),
                          std::to_string(tensor.bytes.size())});
  return table;
}

json to_json(const Inspected& seen) {
  const model::Footprint& f = seen.footprint;
  json tensors              = json::array();
  for (const auto& [name, tensor] : seen.tensors())
    tensors.push_back({{"name", name},
                       {"dtype", traits(tensor.dtype).name},
                       {"shape", tensor.shape},
                       {"bytes", tensor.bytes.size()}});
  json out = {{"schema", "fathom.model/1"},
              {"layout", model::name(seen.layout)},
              {"layers", seen.config.num_hidden_layers},
              {"experts", seen.config.num_local_experts},
              {"experts_per_token", seen.config.num_experts_per_tok},
              {"parameters", f.parameters},
              {"active_parameters", f.active_parameters},
              {"checkpoint_bytes", f.checkpoint_bytes},
              {"bytes_read_by_token", f.bytes_read_by_token},
              {"kv_bytes_per_token", f.kv_bytes_per_token},
              {"kv_window_bytes", f.kv_window_bytes},
              {"roof_tokens_per_s", nullptr},
              {"tensors", tensors}};
  if (seen.roof) out["roof_tokens_per_s"] = seen.roof->tokens_per_s;
  return out;
}

std::string billions(int64_t n) {
  return n >= 100'000'000 ? fmt::format("{:.2f} billion", static_cast<double>(n) * 1e-9)
                          : fmt::format("{}", n);
}
std::string megabytes(int64_t n) {
  return n >= 10'000'000 ? fmt::format("{:.1f} MB", static_cast<double>(n) * 1e-6)
                         : fmt::format("{:.1f} kB", static_cast<double>(n) * 1e-3);
}

void print(const std::string& folder, const Inspected& seen) {
  const model::Config& c    = seen.config;
  const model::Footprint& f = seen.footprint;
  const auto fact           = [](const char* what, const std::string& value) {
    fmt::print("  {:<20} {}\n", what, value);
  };
  const auto sliding = std::count(c.layers.begin(), c.layers.end(), model::Attention::sliding);
  fmt::print("{}: gpt-oss, layout {}\n", folder, model::name(seen.layout));
  fact("layers", fmt::format("{}: {} with a sliding window of {} tokens, {} with full attention",
                             c.num_hidden_layers, sliding, c.sliding_window, c.num_hidden_layers - sliding));
  fact("experts", fmt::format("{} a layer, {} for each token, {}", c.num_local_experts, c.num_experts_per_tok,
                              c.mxfp4_experts ? "MXFP4" : "bf16"));
  fact("attention", fmt::format("and (un)embedding in {}", c.int8_dense ? "int8" : "bf16"));
  fact("parameters",
       fmt::format("{}, {} of them active", billions(f.parameters), billions(f.active_parameters)));
  fact("checkpoint", megabytes(f.checkpoint_bytes));
  fact("read for a token", megabytes(f.bytes_read_by_token) + " of weights, one sequence");
  fact("KV cache", fmt::format("{} a token, and {} for the windows", megabytes(f.kv_bytes_per_token),
                               megabytes(f.kv_window_bytes)));
  if (seen.roof)
    fact("bandwidth bound", fmt::format("{:.3g} tokens/s here: the weights at {}", seen.roof->tokens_per_s,
                                        rate_text(*seen.roof)));
  else
    fact("bandwidth bound", "unknown: `fathom doctor` measures this machine's memory");
  std::map<std::string, std::pair<int64_t, int64_t>> of_dtype;  // tensors, bytes
  for (const auto& [name, tensor] : seen.tensors()) {
    auto& [count, bytes] = of_dtype[std::string(traits(tensor.dtype).name)];
    ++count;
    bytes += static_cast<int64_t>(tensor.bytes.size());
  }
  for (const auto& [dtype, sum] : of_dtype)
    fact(("tensors, " + dtype).c_str(), fmt::format("{}, {}", sum.first, megabytes(sum.second)));
}

}  // namespace

void add_model(CLI::App& app, int& exit_code) {
  auto flags      = std::make_shared<InspectFlags>();
  CLI::App& verb  = *app.add_subcommand("model", "Checkpoints of gpt-oss");
  CLI::App& about = *verb.add_subcommand("inspect", "What a checkpoint holds, and what a token costs");
  verb.require_subcommand(1);
  add_model_eval(verb, exit_code);
  add_model_make(verb, exit_code);
  add_model_numerics(verb, exit_code);
  add_model_quantize(verb, exit_code);
  add_model_tasks(verb, exit_code);
  add_model_tokenize(verb, exit_code);
  about.add_option("folder", flags->folder, "With config.json and *.safetensors")->required();
  add_output_flags(about, flags->outputs);
  about.callback([flags, &exit_code] {
    const Inspected seen = inspect(flags->folder);
    const auto table     = [&] { return tensor_table(seen); };
    if (!write_outputs(flags->outputs, {[&] { return to_json(seen); }, table, table}))
      print(flags->folder, seen);
    exit_code = kExitOk;
  });
}

}  // namespace fathom::cli
