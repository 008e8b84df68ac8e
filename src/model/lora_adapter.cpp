#include "model/lora_adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/read_file.h"
#include "core/strict_json.h"
#include "model/safetensors.h"

namespace fathom::model {
namespace {

using nlohmann::json;

constexpr std::array<const char*, kAttentionMatrices> kMatrixNames = {"q_proj", "k_proj", "v_proj", "o_proj"};

struct LoraConfig {
  int64_t rank = 0;
  float scale  = 1;
};

Result<LoraConfig> read_lora_config(const std::string& path, int64_t max_rank) {
  const auto text = read_file(path);
  if (!text) return Error{text.error().message + "; an adapter's folder has PEFT's adapter_config.json"};
  const auto parsed = parse_strict_json(*text);
  if (!parsed || !parsed->is_object())
    return Error{fmt::format("{}: {}", path, parsed ? "it holds no JSON object" : parsed.error().message)};
  const json& c      = *parsed;
  const auto refused = [&](std::string_view what) {
    return Error{
        fmt::format("{}: {}: the engine adds plain LoRA to attention's matrices; merge the adapter into "
                    "the model instead",
                    path, what)};
  };
  const auto text_at = [&](const char* key, const std::string& otherwise) {
    return c.contains(key) && c.at(key).is_string() ? c.at(key).get<std::string>() : otherwise;
  };
  const auto flag_at = [&](const char* key) { return c.contains(key) && c.at(key) == true; };
  if (text_at("peft_type", "") != "LORA") return refused("peft_type is not LORA");
  for (const char* flag : {"use_dora", "fan_in_fan_out"})
    if (flag_at(flag)) return refused(std::string(flag) + " is true");
  if (text_at("bias", "none") != "none") return refused("bias is not none");
  for (const char* key : {"rank_pattern", "alpha_pattern", "modules_to_save", "alora_invocation_tokens"})
    if (c.contains(key) && !c.at(key).empty()) return refused(std::string(key) + " is not empty");
  // These change the model's own matrices too.
  const std::string start = text_at("init_lora_weights", "");
  for (const char* other : {"pissa", "olora", "corda"})
    if (start.starts_with(other)) return refused("init_lora_weights is " + start);
  for (const char* key : {"r", "lora_alpha"})
    if (!c.contains(key) || !c.at(key).is_number())
      return Error{fmt::format("{}: {} is no number", path, key)};
  const double rank = c.at("r").get<double>(), alpha = c.at("lora_alpha").get<double>();
  if (!(rank >= 1 && rank <= static_cast<double>(max_rank) && rank == std::floor(rank)))
    return Error{fmt::format("{}: r is {}, but an adapter of this model has a whole rank of 1 to {}", path,
                             rank, max_rank)};
  const float scale = static_cast<float>(alpha / (flag_at("use_rslora") ? std::sqrt(rank) : rank));
  if (!std::isfinite(scale))
    return Error{fmt::format("{}: lora_alpha is {}, which is out of range", path, alpha)};
  return LoraConfig{.rank = static_cast<int64_t>(rank), .scale = scale};
}

struct Place {
  int64_t layer = 0;
  int matrix    = 0;
  bool is_b     = false;
};

// Of "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight".
std::optional<Place> place_of(std::string_view name, int64_t layers) {
  for (int64_t l = 0; l < layers; ++l)
    for (int m = 0; m < kAttentionMatrices; ++m)
      for (const bool is_b : {false, true})
        if (name == fmt::format("base_model.model.model.layers.{}.self_attn.{}.lora_{}.weight", l,
                                kMatrixNames[static_cast<size_t>(m)], is_b ? "B" : "A"))
          return Place{.layer = l, .matrix = m, .is_b = is_b};
  return std::nullopt;
}

// False: a number is not finite in bf16.
template <class T>
bool round_to(bf16* to, const Tensor& from, float factor) {
  const auto count = static_cast<int64_t>(from.bytes.size() / sizeof(T));
  bool finite      = true;
  for (int64_t i = 0; i < count; ++i) {
    T number;
    std::memcpy(&number, from.bytes.data() + i * int64_t{sizeof(T)}, sizeof(T));
    to[i] = bf16(static_cast<float>(number) * factor);
    finite &= std::isfinite(static_cast<float>(to[i]));
  }
  return finite;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("{}", fmt::join(shape, " x "));
}

}  // namespace

Result<LoraAdapter> LoraAdapter::open(const std::string& folder, const Config& config) {
  const int64_t H = config.hidden_size, q = config.num_attention_heads * config.head_dim,
                kv = config.num_key_value_heads * config.head_dim;
  const auto lora  = read_lora_config(folder + "/adapter_config.json", std::min(H, kv));
  if (!lora) return lora.error();
  const auto tensors = Safetensors::open(folder + "/adapter_model.safetensors");
  if (!tensors) return tensors.error();
  const std::pair<int64_t, int64_t> shapes[] = {{q, H}, {kv, H}, {kv, H}, {H, q}};  // out, in

  LoraAdapter adapter;
  adapter.rank_ = lora->rank;
  adapter.pairs_.resize(static_cast<size_t>(config.num_hidden_layers));
  int64_t size = 0;
  for (const auto& [name, tensor] : tensors->tensors()) {
    const auto place = place_of(name, config.num_hidden_layers);
    if (!place)
      return Error{
          fmt::format("{}: {} adapts something else than attention's matrices q, k, v and o of layers 0 to "
                      "{}: merge the adapter into the model instead",
                      tensors->path(), in_quotes(name), config.num_hidden_layers - 1)};
    const auto& [out, in] = shapes[place->matrix];
    const std::vector<int64_t> wanted =
        place->is_b ? std::vector{out, lora->rank} : std::vector{lora->rank, in};
    if (tensor.shape != wanted)
      return Error{fmt::format("{}: {} is {}, but rank {} and this model make it {}", tensors->path(),
                               in_quotes(name), shape_text(tensor.shape), lora->rank, shape_text(wanted))};
    if (tensor.dtype != DType::fp32 && tensor.dtype != DType::bf16 && tensor.dtype != DType::fp16)
      return Error{fmt::format("{}: {} is in {}, but must be in F32, BF16 or F16", tensors->path(),
                               in_quotes(name), traits(tensor.dtype).name)};
    size += wanted[0] * wanted[1];
  }
  if (size == 0) return Error{fmt::format("{}: it adapts nothing", tensors->path())};
  adapter.numbers_ = Buffer<bf16>(size);
  bf16* to         = adapter.numbers_.data();
  for (const auto& [name, tensor] : tensors->tensors()) {
    const Place place  = *place_of(name, config.num_hidden_layers);
    const float factor = place.is_b ? lora->scale : 1;
    const bool finite  = tensor.dtype == DType::fp32   ? round_to<float>(to, tensor, factor)
                         : tensor.dtype == DType::bf16 ? round_to<bf16>(to, tensor, factor)
                                                       : round_to<fp16>(to, tensor, factor);
    if (!finite)
      return Error{
          fmt::format("{}: {} has a number that is not finite in BF16", tensors->path(), in_quotes(name))};
    Pair& pair = adapter.pairs_[static_cast<size_t>(place.layer)][static_cast<size_t>(place.matrix)];
    (place.is_b ? pair.b : pair.a) = View<const bf16, 2>(to, {tensor.shape[0], tensor.shape[1]});
    to += tensor.shape[0] * tensor.shape[1];
  }
  for (size_t l = 0; l < adapter.pairs_.size(); ++l)
    for (int m = 0; m < kAttentionMatrices; ++m) {
      const Pair& pair = adapter.pairs_[l][static_cast<size_t>(m)];
      if ((pair.a.size() == 0) != (pair.b.size() == 0))
        return Error{fmt::format("{}: of {} of layer {} there is lora_A or lora_B alone", tensors->path(),
                                 kMatrixNames[static_cast<size_t>(m)], l)};
    }
  return adapter;
}

}  // namespace fathom::model
