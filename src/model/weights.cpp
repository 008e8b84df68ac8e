#include "model/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

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

template <class To, class From>
void convert(std::span<const std::byte> bytes, To* to) {
  const auto* from = reinterpret_cast<const From*>(bytes.data());
  for (size_t i = 0; i < bytes.size() / sizeof(From); ++i)
    to[i] = static_cast<To>(static_cast<float>(from[i]));
}

// Collects all missing and wrong tensors for one message. The view of such a tensor is empty.
class Finder {
 public:
  enum class Conversion { done, left_out };  // left out: the memory of converted tensors has no values

  Finder(const Config& config, const Safetensors& tensors, Layout layout, Conversion conversion)
      : config_(config), tensors_(tensors), layout_(layout), conversion_(conversion) {}

  Weights find() {
    const int64_t V = config_.vocab_size, H = config_.hidden_size;
    Weights w;
    w.layout      = layout_;
    w.embedding   = take_dense(global("model.embed_tokens.weight", "embedding.weight"), V, H);
    w.unembedding = take_dense(global("lm_head.weight", "unembedding.weight"), V, H);
    w.norm        = take_norm(global("model.norm.weight", "norm.scale"));
    for (int64_t l = 0; l < config_.num_hidden_layers; ++l) w.layers.push_back(find_layer(l));

    const std::string beyond = in_layer(config_.num_hidden_layers, kAttnNorm);
    if (tensors_.find(beyond))
      problem(fmt::format("'{}' is of a layer beyond the {} of 'num_hidden_layers'", beyond,
                          config_.num_hidden_layers));
    w.rounded_tensors = rounded_;
    w.converted       = std::move(converted_);
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
    w.out         = take_dense(in_layer(l, kOut), H, q_rows);
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
        matrix                 = take_dense(name + ".weight", rows, H);
        bias                   = take<bf16, 1>(name + ".bias", {rows});
      };
      part("q", q_rows, w.q, w.q_bias);
      part("k", k_rows, w.k, w.k_bias);
      part("v", k_rows, w.v, w.v_bias);
      return;
    }
    // One fused matrix with the rows of q, k and v, in that order.
    const std::string name = fmt::format("block.{}.attn.qkv", l);
    const auto matrix      = take_dense(name + ".weight", q_rows + 2 * k_rows, H);
    const auto bias        = take<bf16, 1>(name + ".bias", {q_rows + 2 * k_rows});
    const auto rows        = [&](int64_t from, int64_t n, auto& part, auto& part_bias) {
      part = rows_from(matrix, from, n);
      if (bias.data()) part_bias = View<const bf16, 1>(bias.data() + from, {n});
    };
    rows(0, q_rows, w.q, w.q_bias);
    rows(q_rows, k_rows, w.k, w.k_bias);
    rows(q_rows + k_rows, k_rows, w.v, w.v_bias);
  }

  DenseMatrix take_dense(const std::string& name, int64_t rows, int64_t columns) {
    if (!config_.int8_dense) return take<bf16, 2>(name, {rows, columns});
    return kernels::Int8Weights{.values = take<int8_t, 2>(name, {rows, columns}),
                                .scales = take<bf16, 2>(name + "_scale", {rows, int8_groups(columns)})};
  }

  // Rows from .. from + n of a matrix; of one that was not found, none.
  static DenseMatrix rows_from(const DenseMatrix& matrix, int64_t from, int64_t n) {
    const auto part = [&]<class T>(const View<const T, 2>& all) {
      if (!all.data()) return View<const T, 2>();
      return View<const T, 2>(all.data() + from * all.extent(1), {n, all.extent(1)});
    };
    if (const auto* plain = std::get_if<View<const bf16, 2>>(&matrix)) return part(*plain);
    const auto& packed = std::get<kernels::Int8Weights>(matrix);
    return kernels::Int8Weights{.values = part(packed.values), .scales = part(packed.scales)};
  }

  template <class T, int Rank>
  View<const T, Rank> take(const std::string& name, const int64_t (&extents)[Rank]) {
    const Tensor* tensor = tensors_.find(name);
    if (!tensor) return problem(fmt::format("'{}' is missing", name)), View<const T, Rank>();
    constexpr bool kFloats = std::is_same_v<T, bf16> || std::is_same_v<T, float>;
    const bool converts    = kFloats && (tensor->dtype == DType::fp32 || tensor->dtype == DType::fp16);
    if ((tensor->dtype != dtype_of<T> && !converts) || !std::ranges::equal(tensor->shape, extents)) {
      problem(fmt::format("'{}' is {} [{}], not {} [{}]", name, traits(tensor->dtype).name,
                          fmt::join(tensor->shape, ", "), traits(dtype_of<T>).name,
                          fmt::join(extents, ", ")));
      return {};
    }
    if constexpr (kFloats)
      if (tensor->dtype != dtype_of<T>) return View<const T, Rank>(converted<T>(*tensor), extents);
    return View<const T, Rank>(reinterpret_cast<const T*>(tensor->bytes.data()), extents);
  }

  template <class To>
  const To* converted(const Tensor& tensor) {
    const size_t size = tensor.bytes.size() / static_cast<size_t>(traits(tensor.dtype).bits / 8);
    // Not initialised: pages that nobody writes cost no memory.
    const std::shared_ptr<To[]> to(new To[size]);
    if (conversion_ == Conversion::done)
      (tensor.dtype == DType::fp32 ? convert<To, float> : convert<To, fp16>)(tensor.bytes, to.get());
    converted_.push_back(to);
    rounded_ += std::is_same_v<To, bf16>;
    return to.get();
  }

  // Some checkpoints have FP32 norms. FP16 is exact in FP32, not in BF16.
  NormWeights take_norm(const std::string& name) {
    const Tensor* tensor = tensors_.find(name);
    if (tensor && (tensor->dtype == DType::fp32 || tensor->dtype == DType::fp16))
      return take<float, 1>(name, {config_.hidden_size});
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
  Conversion conversion_;
  std::vector<std::shared_ptr<const void>> converted_;
  int64_t rounded_ = 0;
  size_t count_    = 0;
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

Result<Weights> find_in(const Config& config, const Safetensors& tensors, Finder::Conversion conversion) {
  const Layout layout = detect_layout(config, tensors);
  if (config.mxfp4_experts != (layout != Layout::hf_bf16))
    return Error{fmt::format(
        "{}: its experts are {}, but config.json says {} (quantization_config): use the "
        "config.json of this checkpoint",
        tensors.path(), config.mxfp4_experts ? "BF16" : "MXFP4", config.mxfp4_experts ? "MXFP4" : "BF16")};
  Finder finder(config, tensors, layout, conversion);
  Weights weights = finder.find();
  if (auto error = finder.error()) return *std::move(error);
  return weights;
}

}  // namespace

const char* name(Layout layout) {
  constexpr const char* kNames[] = {"hf_mxfp4", "hf_bf16", "original"};
  return kNames[static_cast<int>(layout)];
}

Result<Weights> find_weights(const Config& config, const Safetensors& tensors) {
  return find_in(config, tensors, Finder::Conversion::done);
}

Result<Layout> find_layout(const Config& config, const Safetensors& tensors) {
  const auto weights = find_in(config, tensors, Finder::Conversion::left_out);
  if (!weights) return weights.error();
  return weights->layout;
}

}  // namespace fathom::model
