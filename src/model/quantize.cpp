#include "model/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "core/atomic_file.h"
#include "core/int8_group.h"
#include "core/mxfp4_nvfp4.h"
#include "core/read_file.h"
#include "core/strict_json.h"
#include "core/view.h"
#include "model/config.h"
#include "model/safetensors.h"
#include "model/weights.h"

namespace fathom::model {
namespace {

namespace fs = std::filesystem;

// Thrown and caught in this file only.
struct CannotQuantize {
  std::string why;
};

// The relative error of one kind of matrix. Thread-safe.
class RelativeError {
 public:
  void add(double error, double weight) {
    const std::lock_guard lock(mutex_);
    error_ += error, weight_ += weight;
  }
  double rms() const { return weight_ > 0 ? std::sqrt(error_ / weight_) : 0; }

 private:
  std::mutex mutex_;
  double error_ = 0, weight_ = 0;  // sums of squares
};

// Quantizes rows o .. o + n of expert e.
void quantise_rows(const View<const bf16, 3>& weights, int64_t e, int64_t o, int64_t n,
                   std::span<uint8_t> values, std::span<uint8_t> scales, RelativeError& error) {
  const int64_t in = weights.extent(2);
  std::vector<float> rows(static_cast<size_t>(n * in)), rounded(rows.size());
  for (int64_t i = 0; i < in; ++i)  // stored as [in, out]: reads along `out`, writes along `in`
    for (int64_t r = 0; r < n; ++r)
      rows[static_cast<size_t>(r * in + i)] = static_cast<float>(weights(e, o + r, i));
  encode_mxfp4(rows, values, scales);
  decode_mxfp4(values, scales, rounded);
  double errors = 0, squares = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const double w = rows[i], d = rounded[i] - w;
    errors += d * d, squares += w * w;
  }
  error.add(errors, squares);
}

// weights: [E, out, in] with any strides.
TensorSource quantised(const std::string& name, const View<const bf16, 3>& weights, RelativeError& error) {
  constexpr int64_t kRows =
      64;  // at once: one or two cache lines of the stored matrix for each step along `in`
  const int64_t E = weights.extent(0), out = weights.extent(1), in = weights.extent(2), G = in / kMxfp4Block;
  const auto fill = [=, &error](int64_t first, int64_t n, std::span<const std::span<std::byte>> made) {
    const std::span values(reinterpret_cast<uint8_t*>(made[0].data()), made[0].size());
    const std::span scales(reinterpret_cast<uint8_t*>(made[1].data()), made[1].size());
    const auto rows_of = [](std::span<uint8_t> bytes, int64_t from, int64_t count, int64_t row_bytes) {
      return bytes.subspan(static_cast<size_t>(from * row_bytes), static_cast<size_t>(count * row_bytes));
    };
    for (int64_t done = 0, count = 0; done < n; done += count) {
      const int64_t e = (first + done) / out, o = (first + done) % out;
      count = std::min({kRows, n - done, out - o});
      quantise_rows(weights, e, o, count, rows_of(values, done, count, in / 2),
                    rows_of(scales, done, count, G), error);
    }
    if (const auto nan = std::ranges::find(scales, 255); nan != scales.end()) {
      const int64_t row = first + (nan - scales.begin()) / G;
      throw CannotQuantize{fmt::format("tensor '{}' holds an infinity or a NaN in expert {}, output {}", name,
                                       row / out, row % out)};
    }
  };
  return {.tensors = {{name + "_blocks", DType::uint8, {E, out, G, kMxfp4Block / 2}},
                      {name + "_scales", DType::uint8, {E, out, G}}},
          .rows    = E * out,
          .fill    = fill};
}

// `matrix` may be a view of several tensors of the file that lie one behind the other.
TensorSource int8_quantised(const std::string& name, const View<const bf16, 2>& matrix,
                            RelativeError& error) {
  const int64_t rows = matrix.extent(0), columns = matrix.extent(1), groups = int8_groups(columns);
  const auto fill = [=, &error](int64_t first, int64_t n, std::span<const std::span<std::byte>> made) {
    auto* values = reinterpret_cast<int8_t*>(made[0].data());
    auto* scales = reinterpret_cast<bf16*>(made[1].data());
    std::vector<float> row(static_cast<size_t>(columns)), rounded(row.size());
    double errors = 0, squares = 0;
    for (int64_t r = first; r < first + n; ++r, values += columns, scales += groups) {
      for (int64_t k = 0; k < columns; ++k) row[static_cast<size_t>(k)] = static_cast<float>(matrix(r, k));
      if (!std::ranges::all_of(row, [](float w) { return std::isfinite(w); }))
        throw CannotQuantize{fmt::format("tensor '{}' holds an infinity or a NaN in row {}", name, r)};
      const std::span<int8_t> row_values(values, row.size());
      const std::span<bf16> row_scales(scales, static_cast<size_t>(groups));
      encode_int8(row, row_values, row_scales);
      decode_int8(row_values, row_scales, rounded);
      for (size_t k = 0; k < row.size(); ++k) {
        const double w = row[k], d = rounded[k] - w;
        errors += d * d, squares += w * w;
      }
    }
    error.add(errors, squares);
  };
  return {.tensors = {{name, DType::int8, {rows, columns}}, {name + "_scale", DType::bf16, {rows, groups}}},
          .rows    = rows,
          .fill    = fill};
}

// One expert's matrix, [out, in].
std::vector<float> expert_matrix(const ExpertMatrices& matrices, int64_t e) {
  if (const auto* packed = std::get_if<Mxfp4Matrices>(&matrices)) {
    const auto blocks = static_cast<size_t>(packed->scales.extent(1) * packed->scales.extent(2));
    const auto at     = static_cast<size_t>(e) * blocks;
    std::vector<float> matrix(blocks * kMxfp4Block);
    decode_mxfp4({packed->blocks.data() + at * kMxfp4Block / 2, blocks * kMxfp4Block / 2},
                 {packed->scales.data() + at, blocks}, matrix);
    return matrix;
  }
  const auto& weights = std::get<View<const bf16, 3>>(matrices);
  const int64_t out = weights.extent(1), in = weights.extent(2);
  std::vector<float> matrix(static_cast<size_t>(out * in));
  for (int64_t i = 0; i < in; ++i)  // stored as [in, out]
    for (int64_t o = 0; o < out; ++o)
      matrix[static_cast<size_t>(o * in + i)] = static_cast<float>(weights(e, o, i));
  return matrix;
}

int64_t block_of(ExpertFormat format) {
  return format == ExpertFormat::mxfp4 ? kMxfp4Block : format == ExpertFormat::nvfp4 ? kNvfp4Block : 1;
}

// matrix [out, in], all finite.
void round_to(ExpertFormat format, std::span<float> matrix, int64_t in) {
  std::vector<uint8_t> values(matrix.size() / 2),
      scales(matrix.size() / static_cast<size_t>(block_of(format)));
  switch (format) {
    case ExpertFormat::bf16:
      return;
    case ExpertFormat::fp8:
      for (size_t row = 0; row < matrix.size(); row += static_cast<size_t>(in)) {
        const auto numbers = matrix.subspan(row, static_cast<size_t>(in));
        float largest      = 0;
        for (const float x : numbers) largest = std::max(largest, std::fabs(x));
        const float scale = std::max(largest / fp8_e4m3::max(), std::numeric_limits<float>::min());
        for (float& x : numbers) x = static_cast<float>(fp8_e4m3(x / scale)) * scale;
      }
      return;
    case ExpertFormat::mxfp4:
      encode_mxfp4(matrix, values, scales);
      return decode_mxfp4(values, scales, matrix);
    case ExpertFormat::nvfp4: {
      const float scale = nvfp4_tensor_scale(matrix);
      encode_nvfp4(matrix, scale, values, scales);
      return decode_nvfp4(values, scales, scale, matrix);
    }
  }
}

// A row is an expert.
TensorSource fake_quantised(const std::string& name, const ExpertMatrices& matrices, ExpertFormat format,
                            const std::array<int64_t, 3>& shape, RelativeError& error) {
  const auto [E, out, in] = shape;
  const auto fill         = [=, &matrices, &error](int64_t first, int64_t n,
                                           std::span<const std::span<std::byte>> made) {
    auto* to = reinterpret_cast<bf16*>(made[0].data());
    for (int64_t e = first; e < first + n; ++e, to += in * out) {
      const std::vector<float> weights = expert_matrix(matrices, e);
      if (!std::ranges::all_of(weights, [](float w) { return std::isfinite(w); }))
        throw CannotQuantize{fmt::format("tensor '{}' holds an infinity or a NaN in expert {}", name, e)};
      std::vector<float> rounded = weights;
      round_to(format, rounded, in);
      double errors = 0, squares = 0;
      for (int64_t o = 0; o < out; ++o)
        for (int64_t i = 0; i < in; ++i) {
          const auto at   = static_cast<size_t>(o * in + i);
          const auto kept = bf16(rounded[at]);
          const double w = weights[at], d = static_cast<float>(kept) - w;
          to[i * out + o] = kept;
          errors += d * d, squares += w * w;
        }
      error.add(errors, squares);
    }
  };
  return {.tensors = {{name, DType::bf16, {E, in, out}}}, .rows = E, .fill = fill};
}

TensorSource copied(const std::string& name, const Tensor& tensor) {
  const auto fill = [bytes = tensor.bytes](int64_t first, int64_t n,
                                           std::span<const std::span<std::byte>> out) {
    std::memcpy(out[0].data(), bytes.data() + first, static_cast<size_t>(n));
  };
  return {.tensors = {{name, tensor.dtype, tensor.shape}},
          .rows    = static_cast<int64_t>(tensor.bytes.size()),
          .fill    = fill};
}

// The checked input checkpoint.
struct Source {
  Config config;
  Safetensors tensors;
  Weights weights;
  nlohmann::json config_json;
};

Result<Source> open_source(const fs::path& folder) {
  const fs::path config_file = folder / "config.json";
  const auto config          = read_config(config_file);
  if (!config) return config.error();
  auto tensors = Safetensors::open(folder);
  if (!tensors) return tensors.error();
  auto weights = find_weights(*config, *tensors);
  if (!weights) return weights.error();
  const auto text = read_file(config_file);
  if (!text) return text.error();
  auto json = parse_strict_json(*text);
  if (!json) return json.error();
  return Source{*config, *std::move(tensors), *std::move(weights), *std::move(json)};
}

Status copy_json_files(const fs::path& from, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(from)) {
    const fs::path name = entry.path().filename();
    if (!entry.is_regular_file() || name.extension() != ".json" || name == "config.json" ||
        name == "model.safetensors.index.json")
      continue;
    const auto text = read_file(entry.path());
    if (!text) return text.error();
    if (const auto status = write_text_file(to / name, *text); !status) return status.error();
  }
  return Ok{};
}

Status differ(const fs::path& from, const fs::path& to) {
  std::error_code ignored;  // a folder that does not exist is a different one
  if (!fs::equivalent(from, to, ignored)) return Ok{};
  return Error{fmt::format(
      "{}: the quantised checkpoint would replace the one it is made of: name another folder", to.string())};
}

struct Errors {
  RelativeError gate_up, down, attention, embedding;
};

struct NamedMatrix {
  std::string name;
  View<const bf16, 2> matrix;
  RelativeError* error;
};

// The matrices of attention and of the (un)embedding, under the names of their tensors.
std::vector<NamedMatrix> dense_matrices(const Weights& weights, Errors& errors) {
  const auto plain    = [](const DenseMatrix& matrix) { return std::get<View<const bf16, 2>>(matrix); };
  const bool original = weights.layout == Layout::original;
  std::vector<NamedMatrix> found = {
      {original ? "embedding.weight" : "model.embed_tokens.weight", plain(weights.embedding),
       &errors.embedding},
      {original ? "unembedding.weight" : "lm_head.weight", plain(weights.unembedding), &errors.embedding}};
  for (size_t l = 0; l < weights.layers.size(); ++l) {
    const LayerWeights& layer = weights.layers[l];
    const auto q = plain(layer.q), k = plain(layer.k), v = plain(layer.v), out = plain(layer.out);
    if (original) {  // q, k and v are rows of one matrix
      found.push_back({fmt::format("block.{}.attn.qkv.weight", l),
                       View<const bf16, 2>(q.data(), {q.extent(0) + k.extent(0) + v.extent(0), q.extent(1)}),
                       &errors.attention});
      found.push_back({fmt::format("block.{}.attn.out.weight", l), out, &errors.attention});
      continue;
    }
    for (const auto& [part, matrix] : {std::pair{"q", q}, {"k", k}, {"v", v}, {"o", out}})
      found.push_back(
          {fmt::format("model.layers.{}.self_attn.{}_proj.weight", l, part), matrix, &errors.attention});
  }
  return found;
}

// Writes `experts`, all tensors of the source but `replaced`, and the source's JSON files with a new config.
Result<Quantized> write_model(const Source& source, std::vector<TensorSource> experts,
                              std::span<const std::string> replaced, const Errors& errors,
                              const fs::path& from, const fs::path& to, ThreadPool& pool,
                              const WriteProgress& progress) {
  TensorMap rest = source.tensors.tensors();
  for (const std::string& name : replaced) rest.erase(name);
  for (const auto& [name, tensor] : rest) experts.push_back(copied(name, tensor));
  Quantized quantized;
  for (const auto& [name, tensor] : source.tensors.tensors())
    quantized.bytes_read += static_cast<int64_t>(tensor.bytes.size());
  try {
    const auto bytes = write_safetensors(to / "model.safetensors", experts, pool, progress);
    if (!bytes) return bytes.error();
    quantized.bytes_written = *bytes;
  } catch (const CannotQuantize& refused) {
    return Error{
        fmt::format("{}: {}: no format of few bits has such numbers, fetch the checkpoint again or "
                    "train it longer",
                    source.tensors.path(), refused.why)};
  }
  if (const auto status = copy_json_files(from, to); !status) return status.error();
  if (const auto status = write_text_file(to / "config.json", source.config_json.dump(2) + "\n"); !status)
    return status.error();
  quantized.gate_up_error   = errors.gate_up.rms();
  quantized.down_error      = errors.down.rms();
  quantized.attention_error = errors.attention.rms();
  quantized.embedding_error = errors.embedding.rms();
  return quantized;
}

}  // namespace

nlohmann::json mxfp4_quantization() {
  return {{"modules_to_not_convert",
           {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}},
          {"quant_method", "mxfp4"}};
}

Result<Quantized> quantize_model(const fs::path& from, const fs::path& to, DenseFormat dense,
                                 ThreadPool& pool, const WriteProgress& progress) {
  if (const Status apart = differ(from, to); !apart) return apart.error();
  auto source = open_source(from);
  if (!source) return source.error();
  const std::string config_file = (from / "config.json").string();
  const bool experts_done       = source->config.mxfp4_experts;
  if (source->config.int8_dense)
    return Error{fmt::format(
        "{}: this checkpoint's attention is in int8 already: quantise the one that it was made of",
        config_file)};
  if (experts_done && dense == DenseFormat::bf16)
    return Error{
        fmt::format("{}: this checkpoint's experts are MXFP4 already: quantise one with BF16 experts, or add "
                    "--dense int8",
                    config_file)};
  if (!experts_done || !source->config_json.contains("quantization_config"))
    source->config_json["quantization_config"] = mxfp4_quantization();
  if (dense == DenseFormat::int8)
    source->config_json["quantization_config"]["dense"] = {{"dtype", "int8"}, {"group_size", kInt8Group}};
  // Fails if the experts' widths are not multiples of a block.
  if (const auto read = parse_config(source->config_json.dump(), config_file); !read) return read.error();

  Errors errors;
  std::vector<TensorSource> sources;
  std::vector<std::string> replaced;
  for (size_t l = 0; l < source->weights.layers.size() && !experts_done; ++l) {
    const LayerWeights& layer = source->weights.layers[l];
    const std::string experts = fmt::format("model.layers.{}.mlp.experts.", l);
    for (const auto& [kind, matrices, error] : {std::tuple("gate_up_proj", &layer.mlp1, &errors.gate_up),
                                                std::tuple("down_proj", &layer.mlp2, &errors.down)}) {
      sources.push_back(quantised(experts + kind, std::get<View<const bf16, 3>>(*matrices), *error));
      replaced.push_back(experts + kind);
    }
  }
  if (dense == DenseFormat::int8)
    for (const auto& [name, matrix, error] : dense_matrices(source->weights, errors)) {
      sources.push_back(int8_quantised(name, matrix, *error));
      replaced.push_back(name);
    }
  return write_model(*source, std::move(sources), replaced, errors, from, to, pool, progress);
}

Result<Quantized> fake_quantize_model(const fs::path& from, const fs::path& to, ExpertFormat format,
                                      ThreadPool& pool, const WriteProgress& progress) {
  if (const Status apart = differ(from, to); !apart) return apart.error();
  auto source = open_source(from);
  if (!source) return source.error();
  const Config& config = source->config;
  if (source->weights.layout == Layout::original)
    return Error{
        fmt::format("{}: this checkpoint has the names of the `original` folder: give the one with "
                    "Hugging Face's names",
                    source->tensors.path())};
  for (const auto& [name, width] :
       {std::pair("hidden_size", config.hidden_size), {"intermediate_size", config.intermediate_size}})
    if (width % block_of(format) != 0)
      return Error{fmt::format("{}: '{}' is {}, and the format has blocks of {}",
                               (from / "config.json").string(), name, width, block_of(format))};
  if (config.int8_dense)
    return Error{fmt::format(
        "{}: this checkpoint's attention is in int8: round the experts of the one that it was made of",
        (from / "config.json").string())};
  source->config_json.erase("quantization_config");

  Errors errors;
  std::vector<TensorSource> sources;
  std::vector<std::string> replaced;
  const int64_t E = config.num_local_experts, H = config.hidden_size, I = config.intermediate_size;
  for (size_t l = 0; l < source->weights.layers.size(); ++l) {
    const LayerWeights& layer = source->weights.layers[l];
    const std::string experts = fmt::format("model.layers.{}.mlp.experts.", l);
    const std::string gate_up = experts + "gate_up_proj", down = experts + "down_proj";
    sources.push_back(fake_quantised(gate_up, layer.mlp1, format, {E, 2 * I, H}, errors.gate_up));
    sources.push_back(fake_quantised(down, layer.mlp2, format, {E, H, I}, errors.down));
    for (const std::string& name : {gate_up, down})
      replaced.insert(replaced.end(), {name, name + "_blocks", name + "_scales"});
  }
  return write_model(*source, std::move(sources), replaced, errors, from, to, pool, progress);
}

}  // namespace fathom::model
