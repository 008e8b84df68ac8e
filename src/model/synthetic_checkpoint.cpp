#include "model/synthetic_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/atomic_file.h"
#include "core/dtype.h"
#include "core/mxfp4_nvfp4.h"
#include "core/rng.h"
#include "model/config.h"
#include "model/quantize.h"

namespace fathom::model {
namespace {

using nlohmann::json;

// The dimensions in which the shapes differ; the rest of the config is common.
struct Dimensions {
  int64_t layers, experts, vocab, hidden, intermediate, head_dim, heads, kv_heads, window;
};

Dimensions dimensions(ModelShape shape) {
  switch (shape) {
    case ModelShape::tiny:
      return {4, 8, 384, 64, 96, 16, 8, 2, 8};
    case ModelShape::gpt_oss_20b:
      return {24, 32, 201088, 2880, 2880, 64, 64, 8, 128};
    case ModelShape::gpt_oss_120b:
      return {36, 128, 201088, 2880, 2880, 64, 64, 8, 128};
  }
  return {};
}

// Standard deviations of the weights. Their mean is 0; that of norms is 1.
struct Deviations {
  double norms = 0.1, biases = 0.08;
  double embedding, qkv, out, sinks, router, mlp1, mlp2, unembedding;
};

Deviations deviations(ModelShape shape, const Config& c) {
  if (shape == ModelShape::tiny)
    return {.embedding   = 0.08,
            .qkv         = 0.08,
            .out         = 0.08,
            .sinks       = 0.5,
            .router      = 0.08,
            .mlp1        = 1,  // pre-activations far beyond the clamps
            .mlp2        = 0.05,
            .unembedding = 0.08};
  // A matrix with deviation s / sqrt(in) maps a vector of rms 1, the output of a norm, to one of rms s.
  const auto matrix = [](double s, int64_t in) { return s / std::sqrt(static_cast<double>(in)); };
  return {.embedding   = 1,
          .qkv         = matrix(1, c.hidden_size),
          .out         = matrix(1, c.num_attention_heads * c.head_dim),
          .sinks       = 2,  // some outweigh a hundred keys
          .router      = matrix(1, c.hidden_size),
          .mlp1        = matrix(3, c.hidden_size),          // one in fifty is clamped at 7
          .mlp2        = matrix(0.2, c.intermediate_size),  // so that an expert adds about 1
          .unembedding = matrix(2, c.hidden_size)};
}

// The seed of a tensor: FNV-1a of its name, mixed with the model's seed.
uint64_t seed_of(const std::string& name, uint64_t model_seed) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  const auto half = [](uint64_t x, int i) { return static_cast<uint32_t>(x >> (32 * i)); };
  const PhiloxCounter mixed =
      philox({half(hash, 0), half(hash, 1), 0, 0}, {half(model_seed, 0), half(model_seed, 1)});
  return uint64_t{mixed[1]} << 32 | mixed[0];
}

class Maker {
 public:
  Maker(const Config& config, const Deviations& deviations, uint64_t seed)
      : c_(config), d_(deviations), seed_(seed) {}

  std::vector<TensorSource> sources() && {
    const int64_t V = c_.vocab_size, H = c_.hidden_size;
    add("model.embed_tokens.weight", {V, H}, d_.embedding);
    for (int64_t l = 0; l < c_.num_hidden_layers; ++l) add_layer(fmt::format("model.layers.{}.", l));
    add_norm("model.norm.weight");
    add("lm_head.weight", {V, H}, d_.unembedding);
    return std::move(sources_);
  }

 private:
  void add_layer(const std::string& layer) {
    const int64_t H = c_.hidden_size, I = c_.intermediate_size, E = c_.num_local_experts;
    const int64_t q_rows = c_.num_attention_heads * c_.head_dim,
                  k_rows = c_.num_key_value_heads * c_.head_dim;
    add_norm(layer + "input_layernorm.weight");
    const std::string attn = layer + "self_attn.";
    add(attn + "sinks", {c_.num_attention_heads}, d_.sinks);
    for (const auto& [name, rows] : {std::pair{"q_proj", q_rows}, {"k_proj", k_rows}, {"v_proj", k_rows}})
      add_linear(attn + name, rows, H, d_.qkv);
    add_linear(attn + "o_proj", H, q_rows, d_.out);
    add_norm(layer + "post_attention_layernorm.weight");
    add_linear(layer + "mlp.router", E, H, d_.router);
    const std::string experts = layer + "mlp.experts.";
    add_experts(experts + "gate_up_proj", 2 * I, H, d_.mlp1);
    add(experts + "gate_up_proj_bias", {E, 2 * I}, d_.biases);
    add_experts(experts + "down_proj", H, I, d_.mlp2);
    add(experts + "down_proj_bias", {E, H}, d_.biases);
  }

  void add_linear(const std::string& name, int64_t out, int64_t in, double deviation) {
    add(name + ".weight", {out, in}, deviation);
    add(name + ".bias", {out}, d_.biases);
  }

  void add_norm(const std::string& name) { add(name, {c_.hidden_size}, d_.norms, 1); }

  void add(const std::string& name, std::vector<int64_t> shape, double deviation, double mean = 0) {
    int64_t size = 1;
    for (const int64_t extent : shape) size *= extent;
    sources_.push_back({.tensors = {{name, DType::bf16, std::move(shape)}},
                        .rows    = size,
                        .fill    = [=, seed = seed_of(name, seed_)](int64_t first, int64_t n, auto out) {
                          fill_normal(reinterpret_cast<bf16*>(out[0].data()), n, seed, mean, deviation,
                                         first);
                        }});
  }

  // In both layouts the experts' matrices are one random sequence in the order [E, out, in].
  void add_experts(const std::string& name, int64_t out, int64_t in, double deviation) {
    const uint64_t seed = seed_of(name, seed_);
    sources_.push_back(c_.mxfp4_experts ? mxfp4(name, out, in, seed, deviation)
                                        : transposed_bf16(name, out, in, seed, deviation));
  }

  TensorSource mxfp4(const std::string& name, int64_t out, int64_t in, uint64_t seed,
                     double deviation) const {
    const int64_t E = c_.num_local_experts, G = in / kMxfp4Block;
    const auto fill = [=](int64_t first, int64_t n, std::span<const std::span<std::byte>> made) {
      std::vector<bf16> row(static_cast<size_t>(in));
      std::vector<float> wide(row.size());
      for (int64_t r = 0; r < n; ++r) {
        fill_normal(row.data(), in, seed, 0, deviation, (first + r) * in);
        std::transform(row.begin(), row.end(), wide.begin(), [](bf16 x) { return static_cast<float>(x); });
        encode_mxfp4(wide, {reinterpret_cast<uint8_t*>(made[0].data()) + r * in / 2, row.size() / 2},
                     {reinterpret_cast<uint8_t*>(made[1].data()) + r * G, static_cast<size_t>(G)});
      }
    };
    return {.tensors = {{name + "_blocks", DType::uint8, {E, out, G, kMxfp4Block / 2}},
                        {name + "_scales", DType::uint8, {E, out, G}}},
            .rows    = E * out,
            .fill    = fill};
  }

  TensorSource transposed_bf16(const std::string& name, int64_t out, int64_t in, uint64_t seed,
                               double deviation) const {
    const int64_t E = c_.num_local_experts;
    const auto fill = [=](int64_t first, int64_t n, std::span<const std::span<std::byte>> made) {
      auto* to = reinterpret_cast<bf16*>(made[0].data());  // [n, out]
      std::vector<bf16> part(static_cast<size_t>(std::min(n, in)));
      for (int64_t done = 0; done < n;) {
        // At most the rows that are left of one expert.
        const int64_t e = (first + done) / in, i = (first + done) % in, count = std::min(n - done, in - i);
        for (int64_t o = 0; o < out; ++o) {
          fill_normal(part.data(), count, seed, 0, deviation, (e * out + o) * in + i);
          for (int64_t k = 0; k < count; ++k) to[(done + k) * out + o] = part[static_cast<size_t>(k)];
        }
        done += count;
      }
    };
    return {.tensors = {{name, DType::bf16, {E, in, out}}}, .rows = E * in, .fill = fill};
  }

  const Config& c_;
  const Deviations& d_;
  uint64_t seed_;
  std::vector<TensorSource> sources_;
};

}  // namespace

Result<std::string> synthetic_config(const SyntheticCheckpointOptions& options) {
  const Dimensions d    = dimensions(options.shape);
  const int64_t layers  = options.layers.value_or(d.layers);
  const int64_t experts = options.experts.value_or(d.experts);
  const int64_t vocab   = options.vocab.value_or(d.vocab);
  const int64_t active  = std::min<int64_t>(4, experts);
  const bool all_tokens = vocab == 201088;  // the published tokenizer's vocabulary, so its ids apply
  json config           = {{"architectures", {"GptOssForCausalLM"}},
                           {"attention_bias", true},
                           {"attention_dropout", 0.0},
                           {"eos_token_id", all_tokens ? 200002 : 2},
                           {"experts_per_token", active},
                           {"head_dim", d.head_dim},
                           {"hidden_act", "silu"},
                           {"hidden_size", d.hidden},
                           {"initial_context_length", 4096},
                           {"initializer_range", 0.02},
                           {"intermediate_size", d.intermediate},
                           {"max_position_embeddings", 131072},
                           {"model_type", "gpt_oss"},
                           {"num_attention_heads", d.heads},
                           {"num_experts_per_tok", active},
                           {"num_hidden_layers", layers},
                           {"num_key_value_heads", d.kv_heads},
                           {"num_local_experts", experts},
                           {"output_router_logits", false},
                           {"pad_token_id", all_tokens ? 199999 : 1},
                           {"rms_norm_eps", 1e-5},
                           {"rope_scaling",
                            {{"beta_fast", 32.0},
                             {"beta_slow", 1.0},
                             {"factor", 32.0},
                             {"original_max_position_embeddings", 4096},
                             {"rope_type", "yarn"},
                             {"truncate", false}}},
                           {"rope_theta", 150000},
                           {"router_aux_loss_coef", 0.9},
                           {"sliding_window", d.window},
                           {"swiglu_limit", 7.0},
                           {"tie_word_embeddings", false},
                           {"torch_dtype", "bfloat16"},
                           {"use_cache", true},
                           {"vocab_size", vocab}};
  if (!options.bf16) config["quantization_config"] = mxfp4_quantization();
  const auto read = parse_config(config.dump(), "a model of these options");
  if (!read) return read.error();
  for (const Attention layer : read->layers)
    config["layer_types"].push_back(layer == Attention::sliding ? "sliding_attention" : "full_attention");
  return config.dump(2) + "\n";
}

Result<int64_t> make_synthetic_checkpoint(const SyntheticCheckpointOptions& options,
                                          const std::filesystem::path& folder, ThreadPool& pool,
                                          const WriteProgress& progress) {
  const auto text = synthetic_config(options);
  if (!text) return text.error();
  const auto config = parse_config(*text, "config.json");
  if (!config) return config.error();
  const Deviations d = deviations(options.shape, *config);
  auto bytes = write_safetensors(folder / "model.safetensors", Maker(*config, d, options.seed).sources(),
                                 pool, progress, Durable::no);
  if (!bytes) return bytes.error();
  if (const auto status = write_text_file(folder / "config.json", *text); !status) return status.error();
  return bytes;
}

}  // namespace fathom::model
