#include "model/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "core/mxfp4_nvfp4.h"

namespace fathom::model {
namespace {

constexpr size_t kMaxNamed = 4;  // problems listed in a message

// Tensor names within a layer, in Hugging Face's and the original layout.
struct Name {
  const char* hf;
  const char* original;
};
constexpr Name kAttnNorm{"input_layernorm.weight", "attn.norm.scale"};
constexpr Name kSinks{"self_attn.sinks", "attn.sinks"};
constexpr Name kOut{"self_attn.o_proj.weight", "attn.out.weight"};
constexpr Name kOutBias{"self_attn.o_proj.bias", "attn.out.bias"};
constexpr Name kMlpNorm{"post_attention_layernorm.weight", "mlp.norm.scale"};
constexpr Name kRouter{"mlp.router.weight", "mlp.gate.weight"};
constexpr Name kRouterBias{"mlp.router.bias", "mlp.gate.bias"};
constexpr Name kMlp1{"mlp.experts.gate_up_proj", "mlp.mlp1_weight"};
constexpr Name kMlp1Bias{"mlp.experts.gate_up_proj_bias", "mlp.mlp1_bias"};
constexpr Name kMlp2{"mlp.experts.down_proj", "mlp.mlp2_weight"};
constexpr Name kMlp2Bias{"mlp.experts.down_proj_bias", "mlp.mlp2_bias"};

// Collects all missing and wrong tensors for one message. The view of such a tensor is empty.
class Finder {
 public:
  Finder(const Config& config, const Safetensors& tensors, Layout layout)
      : config_(config), tensors_(tensors), layout_(layout) {}

  Weights find() {
    const int64_t V = config_.vocab_size, H = config_.hidden_size;
    Weights w;
    w.layout      = layout_;
    w.embedding   = take<bf16, 2>(global("model.embed_tokens.weight", "embedding.weight"), {V, H});
    w.unembedding = take<bf16, 2>(global("lm_head.weight", "unembedding.weight"), {V, H});
    w.norm        = take_norm(global("model.norm.weight", "norm.scale"));
    for (int64_t l = 0; l < config_.num_hidden_layers; ++l) w.layers.push_back(find_layer(l));

    const std::string beyond = in_layer(config_.num_hidden_layers, kAttnNorm);
    if (tensors_.find(beyond))
      problem(fmt::format("'{}' is of a layer beyond the {} of 'num_hidden_layers'", beyond,
                          config_.num_hidden_layers));
    return w;
  }

  std::optional<Error> error() const {
    if (count_ == 0) return {};
    const std::string more =
        count_ > named_.size() ? fmt::format(" and {} more", count_ - named_.size()) : std::string();
    return Error{
        fmt::format("{}: tensors of its {} layout are missing or do not fit config.json: {}{}: fetch the "
                    "checkpoint and its config.json again",
                    tensors_.path(), name(layout_), fmt::join(named_, "; "), more)};
  }

 private:
  LayerWeights find_layer(int64_t l) {
    const int64_t H = config_.hidden_size, I = config_.intermediate_size, E = config_.num_local_experts;
    const int64_t heads = config_.num_attention_heads, q_rows = heads * config_.head_dim;
    LayerWeights w;
    w.attn_norm = take_norm(in_layer(l, kAttnNorm));
    find_qkv(l, w);
    w.sinks       = take<bf16, 1>(in_layer(l, kSinks), {heads});
    w.out         = take<bf16, 2>(in_layer(l, kOut), {H, q_rows});
    w.out_bias    = take<bf16, 1>(in_layer(l, kOutBias), {H});
    w.mlp_norm    = take_norm(in_layer(l, kMlpNorm));
    w.router      = take<bf16, 2>(in_layer(l, kRouter), {E, H});
    w.router_bias = take<bf16, 1>(in_layer(l, kRouterBias), {E});
    w.mlp1        = take_experts(in_layer(l, kMlp1), E, 2 * I, H);
    w.mlp1_bias   = take<bf16, 2>(in_layer(l, kMlp1Bias), {E, 2 * I});
    w.mlp2        = take_experts(in_layer(l, kMlp2), E, H, I);
    w.mlp2_bias   = take<bf16, 2>(in_layer(l, kMlp2Bias), {E, H});
    return w;
  }

  void find_qkv(int64_t l, LayerWeights& w) {
    const int64_t H      = config_.hidden_size;
    const int64_t q_rows = config_.num_attention_heads * config_.head_dim;
    const int64_t k_rows = config_.num_key_value_heads * config_.head_dim;
    if (layout_ != Layout::original) {
      const auto part = [&](const char* which, int64_t rows, auto& matrix, auto& bias) {
        const std::string name = fmt::format("model.layers.{}.self_attn.{}_proj", l, which);
        matrix                 = take<bf16, 2>(name + ".weight", {rows, H});
        bias                   = take<bf16, 1>(name + ".bias", {rows});
      };
      part("q", q_rows, w.q, w.q_bias);
      part("k", k_rows, w.k, w.k_bias);
      part("v", k_rows, w.v, w.v_bias);
      return;
    }
    // One fused matrix with the rows of q, k and v, in that order.
    const std::string name = fmt::format("block.{}.attn.qkv", l);
    const auto matrix      = take<bf16, 2>(name + ".weight", {q_rows + 2 * k_rows, H});
    const auto bias        = take<bf16, 1>(name + ".bias", {q_rows + 2 * k_rows});
    const auto rows        = [&](int64_t from, int64_t n, auto& part, auto& part_bias) {
      if (matrix.data()) part = View<const bf16, 2>(matrix.data() + from * H, {n, H});
      if (bias.data()) part_bias = View<const bf16, 1>(bias.data() + from, {n});
    };
    rows(0, q_rows, w.q, w.q_bias);
    rows(q_rows, k_rows, w.k, w.k_bias);
    rows(q_rows + k_rows, k_rows, w.v, w.v_bias);
  }

  template <class T, int Rank>
  View<const T, Rank> take(const std::string& name, const int64_t (&extents)[Rank]) {
    const Tensor* tensor = tensors_.find(name);
    if (!tensor) return problem(fmt::format("'{}' is missing", name)), View<const T, Rank>();
    if (tensor->dtype != dtype_of<T> || !std::ranges::equal(tensor->shape, extents)) {
      problem(fmt::format("'{}' is {} [{}], not {} [{}]", name, traits(tensor->dtype).name,
                          fmt::join(tensor->shape, ", "), traits(dtype_of<T>).name,
                          fmt::join(extents, ", ")));
      return {};
    }
    return View<const T, Rank>(reinterpret_cast<const T*>(tensor->bytes.data()), extents);
  }

  // Some converted checkpoints have FP32 norms.
  NormWeights take_norm(const std::string& name) {
    const Tensor* tensor = tensors_.find(name);
    if (tensor && tensor->dtype == DType::fp32) return take<float, 1>(name, {config_.hidden_size});
    return take<bf16, 1>(name, {config_.hidden_size});
  }

  ExpertMatrices take_experts(const std::string& name, int64_t E, int64_t out, int64_t in) {
    if (layout_ == Layout::hf_bf16) {
      const auto stored = take<bf16, 3>(name, {E, in, out});
      return View<const bf16, 3>(stored.data(), {E, out, in}, {in * out, 1, out});
    }
    const char* separator = layout_ == Layout::original ? "." : "_";
    const int64_t G       = in / kMxfp4Block;
    return Mxfp4Matrices{
        .blocks = take<uint8_t, 4>(name + separator + "blocks", {E, out, G, kMxfp4Block / 2}),
        .scales = take_scales(name + separator + "scales", {E, out, G})};
  }

  View<const uint8_t, 3> take_scales(const std::string& name, const int64_t (&extents)[3]) {
    const auto scales = take<uint8_t, 3>(name, extents);
    if (!scales.data() || scales.size() == 0) return scales;
    const void* nan = std::memchr(scales.data(), 255, static_cast<size_t>(scales.size()));
    if (nan) {
      const int64_t at = static_cast<const uint8_t*>(nan) - scales.data();
      problem(fmt::format("'{}' has a scale that is NaN (255) at [{}, {}, {}]", name,
                          at / (extents[1] * extents[2]), at / extents[2] % extents[1], at % extents[2]));
    }
    return scales;
  }

  std::string global(const char* hf, const char* original) const {
    return layout_ == Layout::original ? original : hf;
  }
  std::string in_layer(int64_t l, const Name& name) const {
    return layout_ == Layout::original ? fmt::format("block.{}.{}", l, name.original)
                                       : fmt::format("model.layers.{}.{}", l, name.hf);
  }

  void problem(std::string what) {
    if (++count_ <= kMaxNamed) named_.push_back(std::move(what));
  }

  const Config& config_;
  const Safetensors& tensors_;
  Layout layout_;
  size_t count_ = 0;
  std::vector<std::string> named_;  // the first problems
};

Layout detect_layout(const Config& config, const Safetensors& tensors) {
  if (tensors.find("embedding.weight") || tensors.find("block.0.attn.norm.scale")) return Layout::original;
  const std::string experts = std::string("model.layers.0.") + kMlp1.hf;
  if (tensors.find(experts)) return Layout::hf_bf16;
  if (tensors.find(experts + "_blocks")) return Layout::hf_mxfp4;
  return config.mxfp4_experts ? Layout::hf_mxfp4
                              : Layout::hf_bf16;  // so that the message names the missing tensors
}

}  // namespace

const char* name(Layout layout) {
  constexpr const char* kNames[] = {"hf_mxfp4", "hf_bf16", "original"};
  return kNames[static_cast<int>(layout)];
}

Result<Weights> find_weights(const Config& config, const Safetensors& tensors) {
  const Layout layout = detect_layout(config, tensors);
  if (config.mxfp4_experts != (layout != Layout::hf_bf16))
    return Error{fmt::format(
        "{}: its experts are {}, but config.json says {} (quantization_config): use the "
        "config.json of this checkpoint",
        tensors.path(), config.mxfp4_experts ? "BF16" : "MXFP4", config.mxfp4_experts ? "MXFP4" : "BF16")};
  Finder finder(config, tensors, layout);
  Weights weights = finder.find();
  if (auto error = finder.error()) return *std::move(error);
  return weights;
}

}  // namespace fathom::model
