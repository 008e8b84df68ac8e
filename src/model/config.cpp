#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>

#include "core/int8_group.h"
#include "core/mxfp4_nvfp4.h"
#include "core/strict_json.h"
#include "model/config_fields.h"

namespace fathom::model {
namespace {

// Names of fields that config.json says in other words.
constexpr const char *kExpertFormat = "experts", *kDenseFormat = "dense weights";

using Json = nlohmann::json;

// Thrown and caught in this file only.
struct Refused {
  std::string why;
};

// An object of the file, and its path for messages.
class Keys {
 public:
  Keys(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object.is_object())
      throw Refused{path_.empty() ? "it holds no JSON object: is this a model's config.json?"
                                  : fmt::format("'{}' must be an object", path_)};
  }

  std::string full(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }

  // Null for a key that is missing or null.
  const Json* find(const std::string& key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  std::optional<int64_t> integer(const std::string& key, int64_t lo, int64_t hi) const {
    const Json* json = find(key);
    if (!json) return {};
    const bool fits = json->is_number_unsigned() ? json->get<uint64_t>() <= static_cast<uint64_t>(hi)
                                                 : json->is_number_integer();
    if (!fits || json->get<int64_t>() < lo || json->get<int64_t>() > hi)
      throw Refused{fmt::format("'{}' must be an integer from {} to {}", full(key), lo, hi)};
    return json->get<int64_t>();
  }

  std::optional<double> number(const std::string& key, double lo, double hi) const {
    const Json* json = find(key);
    if (!json) return {};
    if (!json->is_number() || !(json->get<double>() >= lo && json->get<double>() <= hi))
      throw Refused{fmt::format("'{}' must be a number from {} to {}", full(key), lo, hi)};
    return json->get<double>();
  }

  std::optional<bool> boolean(const std::string& key) const {
    const Json* json = find(key);
    if (!json) return {};
    if (!json->is_boolean()) throw Refused{fmt::format("'{}' must be true or false", full(key))};
    return json->get<bool>();
  }

  std::optional<std::string> text(const std::string& key) const {
    const Json* json = find(key);
    if (!json) return {};
    if (!json->is_string()) throw Refused{fmt::format("'{}' must be a string", full(key))};
    return json->get<std::string>();
  }

 private:
  const Json& object_;
  std::string path_;
};

// One value under several names. All names given must agree.
template <class T>
class Spellings {
 public:
  Spellings& add(const std::string& name, std::optional<T> value) {
    names_ += (names_.empty() ? "'" : " or '") + name + "'";
    if (!value) return *this;
    if (value_ && *value_ != *value)
      throw Refused{fmt::format("'{}' is {} but '{}' is {}: make them agree", given_, *value_, name, *value)};
    if (!value_) value_ = value, given_ = name;
    return *this;
  }

  T required() const {
    if (!value_) throw Refused{fmt::format("{} is missing: add it", names_)};
    return *value_;
  }
  T value_or(T fallback) const { return value_.value_or(fallback); }

 private:
  std::string names_, given_;
  std::optional<T> value_;
};

// These limits keep all counts of parameters and bytes below 2^62.
constexpr int64_t kMaxLayers = 1 << 10, kMaxExperts = 1 << 13, kMaxWidth = 1 << 17, kMaxVocab = 1 << 24;
constexpr int64_t kMaxHeads = 1 << 10, kMaxHeadDim = 1 << 9, kMaxContext = 1 << 30;

void expect_text(const Keys& keys, const std::string& key, const std::string& only) {
  const auto text = keys.text(key);
  if (text && *text != only)
    throw Refused{fmt::format("'{}' is {}, but only '{}' is implemented: choose another model",
                              keys.full(key), in_quotes(*text), only)};
}

void expect_boolean(const Keys& keys, const std::string& key, bool only) {
  if (keys.boolean(key).value_or(only) != only)
    throw Refused{fmt::format("'{}' is {}, but only {} is implemented: choose another model", keys.full(key),
                              !only, only)};
}

Rope read_rope(const Keys& top) {
  // The RoPE parameters are an object under one of two names; in the original spelling they are top-level
  // keys.
  const std::string name = top.find("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const bool nested      = top.find(name) != nullptr;
  if (!nested && !top.find("rope_scaling_factor"))
    throw Refused{"'rope_scaling', 'rope_parameters' or 'rope_scaling_factor' is missing: add it"};
  if (nested && name == "rope_parameters" && top.find("rope_scaling"))
    throw Refused{"it has both 'rope_parameters' and 'rope_scaling': remove one"};
  const Json none = Json::object();
  const Keys inner(nested ? *top.find(name) : none, name);

  const auto number = [&](const char* nested_name, const char* flat_name, double lo, double hi) {
    Spellings<double> spellings;
    return spellings.add(inner.full(nested_name), inner.number(nested_name, lo, hi))
        .add(flat_name, top.number(flat_name, lo, hi));
  };

  const std::string type = Spellings<std::string>()
                               .add(inner.full("rope_type"), inner.text("rope_type"))
                               .add(inner.full("type"), inner.text("type"))
                               .value_or("yarn");
  if (type != "yarn" && type != "default")
    throw Refused{
        fmt::format("'{}' is {}, but only 'yarn' and 'default' are implemented: choose another model",
                    inner.full("rope_type"), in_quotes(type))};
  for (const char* key : {"attention_factor", "mscale", "mscale_all_dim"})
    if (inner.find(key))
      throw Refused{fmt::format("'{}' is not implemented: choose another model", inner.full(key))};

  Rope rope;
  rope.theta = number("rope_theta", "rope_theta", 1.000001, 1e12).required();
  rope.original_context =
      Spellings<int64_t>()
          .add(inner.full("original_max_position_embeddings"),
               inner.integer("original_max_position_embeddings", 1, kMaxContext))
          .add("initial_context_length", top.integer("initial_context_length", 1, kMaxContext))
          .value_or(0);
  if (type == "default") return rope;

  if (rope.original_context == 0)
    throw Refused{fmt::format("'{}' or 'initial_context_length' is missing: add it",
                              inner.full("original_max_position_embeddings"))};
  rope.factor    = number("factor", "rope_scaling_factor", 1, 1e6).required();
  rope.beta_fast = number("beta_fast", "rope_ntk_beta", 1e-6, 1e6).value_or(32);
  rope.beta_slow = number("beta_slow", "rope_ntk_alpha", 1e-6, 1e6).value_or(1);
  rope.truncate =
      inner.boolean("truncate")
          .value_or(nested);  // transformers' default is true; the original implementation never truncates
  if (rope.beta_fast <= rope.beta_slow)
    throw Refused{fmt::format("YaRN's beta_fast is {}, not above beta_slow, {}: correct them", rope.beta_fast,
                              rope.beta_slow)};
  return rope;
}

std::vector<Attention> read_layers(const Keys& top, int64_t num_layers) {
  std::vector<Attention> layers;
  const Json* types = top.find("layer_types");
  if (!types) {
    for (int64_t l = 0; l < num_layers; ++l)
      layers.push_back(l % 2 == 0 ? Attention::sliding : Attention::full);
    return layers;
  }
  if (!types->is_array() || static_cast<int64_t>(types->size()) != num_layers)
    throw Refused{fmt::format("'layer_types' must list {} layers, as 'num_hidden_layers' says", num_layers)};
  for (const Json& type : *types) {
    if (type != "sliding_attention" && type != "full_attention")
      throw Refused{fmt::format(
          "'layer_types[{}]' must be \"sliding_attention\" or \"full_attention\": choose another model",
          layers.size())};
    layers.push_back(type == "sliding_attention" ? Attention::sliding : Attention::full);
  }
  return layers;
}

std::vector<int64_t> read_eos(const Keys& top, int64_t vocab_size) {
  std::vector<int64_t> ids;
  const Json* eos = top.find("eos_token_id");
  if (!eos) return ids;
  for (const Json& id : eos->is_array() ? *eos : Json::array({*eos})) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocab_size))
      throw Refused{fmt::format("'eos_token_id' must be a token or a list of tokens below {}", vocab_size)};
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

// The original spelling has no key for quantization and is always MXFP4.
bool read_mxfp4(const Keys& top) {
  const Json* json = top.find("quantization_config");
  if (!json) return top.find("rope_scaling_factor") && !top.find("model_type");
  const Keys quantization(*json, "quantization_config");
  if (!quantization.find("quant_method"))
    throw Refused{"'quantization_config.quant_method' is missing: add it"};
  expect_text(quantization, "quant_method", "mxfp4");
  return true;
}

// {"dense": {"dtype": "int8", "group_size": 32}} of the quantization, a key of our own.
bool read_int8_dense(const Keys& top) {
  const Json* quantization = top.find("quantization_config");
  const Json* json = quantization ? Keys(*quantization, "quantization_config").find("dense") : nullptr;
  if (!json) return false;
  const Keys dense(*json, "quantization_config.dense");
  if (!dense.find("dtype")) throw Refused{"'quantization_config.dense.dtype' is missing: add it"};
  expect_text(dense, "dtype", "int8");
  (void)dense.integer("group_size", kInt8Group, kInt8Group);
  return true;
}

void check_relations(const Config& c) {
  const auto require = [](bool holds, std::string why) {
    if (!holds) throw Refused{std::move(why)};
  };
  require(c.num_experts_per_tok <= c.num_local_experts,
          fmt::format("'num_experts_per_tok' is {}, more than the {} of 'num_local_experts': correct one",
                      c.num_experts_per_tok, c.num_local_experts));
  require(c.num_attention_heads % c.num_key_value_heads == 0,
          fmt::format("'num_attention_heads' is {}, no multiple of 'num_key_value_heads', {}: correct one",
                      c.num_attention_heads, c.num_key_value_heads));
  require(c.head_dim % 2 == 0, fmt::format("'head_dim' is {}, but must be even to be rotated", c.head_dim));
  if (!c.mxfp4_experts) return;
  for (const auto& [key, width] :
       {std::pair{"hidden_size", c.hidden_size}, std::pair{"intermediate_size", c.intermediate_size}})
    require(width % kMxfp4Block == 0,
            fmt::format("'{}' is {}, but MXFP4 experts need a multiple of {}: use an un-quantised checkpoint",
                        key, width, kMxfp4Block));
}

Config read(const Keys& top) {
  expect_text(top, "model_type", "gpt_oss");
  expect_text(top, "hidden_act", "silu");  // the name of the clamped SwiGLU in released files
  expect_boolean(top, "attention_bias", true);
  expect_boolean(top, "tie_word_embeddings", false);

  const auto size = [&](const char* key, int64_t max) {
    return Spellings<int64_t>().add(key, top.integer(key, 1, max)).required();
  };
  Config c;
  c.num_hidden_layers = size("num_hidden_layers", kMaxLayers);
  c.num_local_experts = Spellings<int64_t>()
                            .add("num_local_experts", top.integer("num_local_experts", 1, kMaxExperts))
                            .add("num_experts", top.integer("num_experts", 1, kMaxExperts))
                            .required();
  c.num_experts_per_tok = Spellings<int64_t>()
                              .add("num_experts_per_tok", top.integer("num_experts_per_tok", 1, kMaxExperts))
                              .add("experts_per_token", top.integer("experts_per_token", 1, kMaxExperts))
                              .required();
  c.hidden_size         = size("hidden_size", kMaxWidth);
  c.intermediate_size   = size("intermediate_size", kMaxWidth);
  c.vocab_size          = size("vocab_size", kMaxVocab);
  c.head_dim            = size("head_dim", kMaxHeadDim);
  c.num_attention_heads = size("num_attention_heads", kMaxHeads);
  c.num_key_value_heads = size("num_key_value_heads", kMaxHeads);
  c.sliding_window      = size("sliding_window", kMaxContext);
  c.rms_norm_eps        = top.number("rms_norm_eps", 1e-12, 1).value_or(1e-5);
  c.swiglu_limit        = top.number("swiglu_limit", 1e-3, 1e6).value_or(7);
  c.swiglu_alpha        = top.number("swiglu_alpha", 1e-3, 1e6).value_or(1.702);
  c.rope                = read_rope(top);
  const double extended = static_cast<double>(c.rope.original_context) * c.rope.factor;
  if (const auto given = top.integer("max_position_embeddings", 1, kMaxContext))
    c.max_position_embeddings = *given;
  else if (extended >= 1 && extended <= kMaxContext)
    c.max_position_embeddings = static_cast<int64_t>(extended);
  else
    throw Refused{"'max_position_embeddings' is missing: add it"};
  if (c.rope.original_context == 0) c.rope.original_context = c.max_position_embeddings;
  c.mxfp4_experts = read_mxfp4(top);
  c.int8_dense    = read_int8_dense(top);
  c.layers        = read_layers(top, c.num_hidden_layers);
  c.eos_token_ids = read_eos(top, c.vocab_size);
  check_relations(c);
  return c;
}

}  // namespace

Result<Config> parse_config(std::string_view text, const std::string& file) {
  const auto json = parse_strict_json(text);
  if (!json) return Error{fmt::format("{}: {}: fetch it again", file, json.error().message)};
  try {
    return read(Keys(*json, ""));
  } catch (const Refused& refused) {
    return Error{fmt::format("{}: {}", file, refused.why)};
  }
}

Result<Config> read_config(const std::filesystem::path& file) {
  constexpr std::streamsize kMaxBytes = 1 << 20;  // released files have 2 KB
  std::string text(kMaxBytes + 1, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(text.data(), kMaxBytes + 1);
  if (in.bad() || in.gcount() == 0)
    return Error{fmt::format("{}: cannot be read, or is empty: name a model's folder that has a config.json",
                             file.string())};
  if (in.gcount() > kMaxBytes)
    return Error{fmt::format("{}: larger than 1 MiB: is this a model's config.json?", file.string())};
  text.resize(static_cast<size_t>(in.gcount()));
  return parse_config(text, file.string());
}

std::vector<std::pair<std::string, std::string>> fields_of(const Config& c) {
  std::vector<std::pair<std::string, std::string>> fields;
  const auto add = [&](std::string name, const auto& value) {
    fields.emplace_back(std::move(name), fmt::format("{}", value));
  };
  add("num_hidden_layers", c.num_hidden_layers);
  add("num_local_experts", c.num_local_experts);
  add("num_experts_per_tok", c.num_experts_per_tok);
  add("hidden_size", c.hidden_size);
  add("intermediate_size", c.intermediate_size);
  add("vocab_size", c.vocab_size);
  add("head_dim", c.head_dim);
  add("num_attention_heads", c.num_attention_heads);
  add("num_key_value_heads", c.num_key_value_heads);
  add("sliding_window", c.sliding_window);
  add("max_position_embeddings", c.max_position_embeddings);
  add("rms_norm_eps", c.rms_norm_eps);
  add("swiglu_limit", c.swiglu_limit);
  add("swiglu_alpha", c.swiglu_alpha);
  add("rope_theta", c.rope.theta);
  add("rope_scaling.factor", c.rope.factor);
  add("rope_scaling.beta_fast", c.rope.beta_fast);
  add("rope_scaling.beta_slow", c.rope.beta_slow);
  add("rope_scaling.original_max_position_embeddings", c.rope.original_context);
  add("rope_scaling.truncate", c.rope.truncate);
  add(kExpertFormat, c.mxfp4_experts ? "MXFP4" : "BF16");
  add(kDenseFormat, c.int8_dense ? "int8" : "BF16");
  for (size_t l = 0; l < c.layers.size(); ++l)
    add(fmt::format("layer_types[{}]", l),
        c.layers[l] == Attention::full ? "full_attention" : "sliding_attention");
  return fields;
}

std::optional<std::string> first_difference(const Config& config, const Config& wanted) {
  const auto is = fields_of(config), other = fields_of(wanted);
  for (size_t i = 0; i < std::min(is.size(), other.size()); ++i) {
    const auto& [name, value] = is[i];
    if (value == other[i].second) continue;
    const bool format = name == kExpertFormat || name == kDenseFormat;
    return format ? fmt::format("its {} are {}, not {}", name, value, other[i].second)
                  : fmt::format("'{}' is {}, not {}", name, value, other[i].second);
  }
  return std::nullopt;
}

Footprint footprint(const Config& c) {
  constexpr int64_t kBf16Bytes = 2;
  const int64_t H = c.hidden_size, I = c.intermediate_size, E = c.num_local_experts;
  const int64_t q_width = c.num_attention_heads * c.head_dim, kv_width = c.num_key_value_heads * c.head_dim;

  const int64_t qkv             = (q_width + 2 * kv_width) * (H + 1);
  const int64_t out             = H * (q_width + 1);
  const int64_t dense_layer     = 2 * H + qkv + c.num_attention_heads + out + E * (H + 1);
  const int64_t expert_matrices = 2 * I * H + H * I, expert_biases = 2 * I + H;
  const int64_t expert    = expert_matrices + expert_biases;
  const int64_t embedding = c.vocab_size * H;  // the unembedding has the same size
  const int64_t L = c.num_hidden_layers, K = c.num_experts_per_tok;

  const auto dense_bytes = [&](int64_t rows, int64_t columns) {
    return rows * (c.int8_dense ? columns + int8_groups(columns) * kBf16Bytes : columns * kBf16Bytes);
  };
  const int64_t attention       = (q_width + 2 * kv_width) * H + H * q_width;  // matrices alone
  const int64_t attention_bytes = dense_bytes(q_width + 2 * kv_width, H) + dense_bytes(H, q_width);
  const int64_t embedding_bytes = dense_bytes(c.vocab_size, H);

  const int64_t matrix_bytes =
      c.mxfp4_experts ? expert_matrices / 2 + expert_matrices / kMxfp4Block : expert_matrices * kBf16Bytes;
  const int64_t kv_bytes    = 2 * kv_width * kBf16Bytes;  // of one token in one layer
  const int64_t full_layers = std::count(c.layers.begin(), c.layers.end(), Attention::full);

  Footprint f;
  f.parameters        = L * (dense_layer + E * expert) + 2 * embedding + H;
  f.active_parameters = L * (dense_layer + K * expert) + embedding + H;
  f.expert_bytes      = matrix_bytes + expert_biases * kBf16Bytes;
  f.dense_layer_bytes = attention_bytes + (dense_layer - attention) * kBf16Bytes;
  f.checkpoint_bytes  = L * (f.dense_layer_bytes + E * f.expert_bytes) + 2 * embedding_bytes + H * kBf16Bytes;
  f.bytes_read_by_token = L * (f.dense_layer_bytes + K * f.expert_bytes) + embedding_bytes + H * kBf16Bytes;
  f.kv_bytes_per_token  = full_layers * kv_bytes;
  f.kv_window_bytes     = (L - full_layers) * kv_bytes * c.sliding_window;
  return f;
}

}  // namespace fathom::model
