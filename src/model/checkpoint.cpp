#include "model/checkpoint.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/read_file.h"
#include "core/strict_json.h"

namespace fathom::model {
namespace {

// Reads the object of a small JSON file beside the weights. A missing file reads as an empty object.
Result<nlohmann::json> read_beside(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return nlohmann::json::object();
  const auto text = read_file(file);
  if (!text) return text.error();
  auto json = parse_strict_json(*text);
  if (!json) return Error{fmt::format("{}: {}: fetch the file again", file.string(), json.error().message)};
  if (!json->is_object())
    return Error{fmt::format("{}: it holds no JSON object: fetch the file again", file.string())};
  return std::move(json).value();
}

Result<std::optional<Tokenizer>> read_tokenizer(const std::filesystem::path& file, const Config& config) {
  if (!std::filesystem::exists(file)) return std::optional<Tokenizer>();
  auto tokenizer = Tokenizer::load(file.string());
  if (!tokenizer) return tokenizer.error();
  if (tokenizer->vocab_size() > config.vocab_size)
    return Error{
        fmt::format("{}: it has ids up to {}, but the model's vocabulary ends at {}: use the "
                    "tokenizer.json of this checkpoint",
                    file.string(), tokenizer->vocab_size() - 1, config.vocab_size - 1)};
  return std::optional<Tokenizer>(std::move(tokenizer).value());
}

// `eos_token_id` holds one id or a list.
Result<std::vector<TokenId>> read_eos(const nlohmann::json& generation, const std::filesystem::path& file,
                                      const Config& config) {
  if (!generation.contains("eos_token_id"))
    return std::vector<TokenId>(config.eos_token_ids.begin(), config.eos_token_ids.end());
  const nlohmann::json& eos = generation["eos_token_id"];
  std::vector<TokenId> ids;
  for (const nlohmann::json& id : eos.is_array() ? eos : nlohmann::json::array({eos})) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(config.vocab_size))
      return Error{fmt::format("{}: 'eos_token_id' is {}, but ids are 0 to {}: fetch the file again",
                               file.string(), id.dump(), config.vocab_size - 1)};
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

Result<std::string> read_system_prompt(const nlohmann::json& generation, const std::filesystem::path& file) {
  const auto prompt = generation.find("system_prompt");
  if (prompt == generation.end()) return std::string();
  if (!prompt->is_string())
    return Error{fmt::format("{}: 'system_prompt' is no text: fetch the file again", file.string())};
  return prompt->get<std::string>();
}

Result<SamplingDefaults> read_sampling(const nlohmann::json& generation, const std::filesystem::path& file) {
  const auto number = [&](const char* key, double otherwise) {
    const auto found = generation.find(key);
    return found == generation.end() || found->is_null() ? otherwise
           : found->is_number()                          ? found->get<double>()
                                                         : std::numeric_limits<double>::quiet_NaN();
  };
  const auto sampled       = generation.find("do_sample");
  const bool greedy        = sampled != generation.end() && *sampled == false;
  const double temperature = number("temperature", 1), top_p = number("top_p", 1), top_k = number("top_k", 0);
  const auto refuse = [&](const char* key, const char* what) {
    return Error{fmt::format("{}: '{}' is {}, but must be {}: fetch the file again", file.string(), key,
                             generation[key].dump(), what)};
  };
  if (!(temperature >= 0 && temperature <= 100)) return refuse("temperature", "a number from 0 to 100");
  if (!(top_p > 0 && top_p <= 1)) return refuse("top_p", "a number above 0 and at most 1");
  if (!(top_k >= 0 && top_k <= 1e9)) return refuse("top_k", "a number from 0 to 1e9");
  return SamplingDefaults{
      .temperature = greedy ? 0 : temperature, .top_p = top_p, .top_k = static_cast<int64_t>(top_k)};
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& folder, Safetensors::Load load) {
  auto config = read_config(folder / "config.json");
  if (!config) return config.error();
  auto tensors = Safetensors::open(folder, load);
  if (!tensors) return tensors.error();
  auto weights = find_weights(*config, *tensors);
  if (!weights) return weights.error();
  auto tokenizer = read_tokenizer(folder / "tokenizer.json", *config);
  if (!tokenizer) return tokenizer.error();
  const auto generation_file = folder / "generation_config.json";
  const auto generation      = read_beside(generation_file);
  if (!generation) return generation.error();
  auto eos_ids = read_eos(*generation, generation_file, *config);
  if (!eos_ids) return eos_ids.error();
  auto system_prompt = read_system_prompt(*generation, generation_file);
  if (!system_prompt) return system_prompt.error();

  const auto sampling = read_sampling(*generation, generation_file);
  if (!sampling) return sampling.error();

  std::optional<HarmonyTokens> harmony;
  if (*tokenizer)
    if (const auto found = HarmonyTokens::find(**tokenizer)) harmony = *found;
  return Checkpoint{.config        = std::move(config).value(),
                    .tensors       = std::move(tensors).value(),
                    .weights       = std::move(weights).value(),
                    .tokenizer     = std::move(tokenizer).value(),
                    .harmony       = harmony,
                    .system_prompt = std::move(system_prompt).value(),
                    .eos_ids       = std::move(eos_ids).value(),
                    .sampling      = *sampling};
}

}  // namespace fathom::model
