#include "model/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/atomic_file.h"
#include "core/mxfp4_nvfp4.h"
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

Result<std::string> read_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) return Error{fmt::format("{}: cannot be read: check its permissions", file.string())};
  return text;
}

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
  Safetensors tensors;
  Weights weights;
  std::string new_config;
};

Result<Source> open_source(const fs::path& folder) {
  const fs::path config_file = folder / "config.json";
  const auto config          = read_config(config_file);
  if (!config) return config.error();
  if (config->mxfp4_experts)
    return Error{
        fmt::format("{}: this checkpoint's experts are MXFP4 already: quantise one with BF16 experts",
                    config_file.string())};
  auto tensors = Safetensors::open(folder);
  if (!tensors) return tensors.error();
  auto weights = find_weights(*config, *tensors);
  if (!weights) return weights.error();

  const auto text = read_text(config_file);
  if (!text) return text.error();
  auto json = parse_strict_json(*text);
  if (!json) return json.error();
  (*json)["quantization_config"] = mxfp4_quantization();
  std::string new_config         = json->dump(2) + "\n";
  // Fails if the experts' widths are not multiples of a block.
  if (const auto read = parse_config(new_config, config_file.string()); !read) return read.error();
  return Source{*std::move(tensors), *std::move(weights), std::move(new_config)};
}

Status copy_json_files(const fs::path& from, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(from)) {
    const fs::path name = entry.path().filename();
    if (!entry.is_regular_file() || name.extension() != ".json" || name == "config.json" ||
        name == "model.safetensors.index.json")
      continue;
    const auto text = read_text(entry.path());
    if (!text) return text.error();
    if (const auto status = write_text_file(to / name, *text); !status) return status.error();
  }
  return Ok{};
}

}  // namespace

nlohmann::json mxfp4_quantization() {
  return {{"modules_to_not_convert",
           {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}},
          {"quant_method", "mxfp4"}};
}

Result<Quantized> quantize_model(const fs::path& from, const fs::path& to, ThreadPool& pool,
                                 const WriteProgress& progress) {
  std::error_code ignored;  // a folder that does not exist is a different one
  if (fs::equivalent(from, to, ignored))
    return Error{
        fmt::format("{}: the quantised checkpoint would replace the one it is made of: name another folder",
                    to.string())};
  auto source = open_source(from);
  if (!source) return source.error();

  RelativeError gate_up, down;
  TensorMap rest = source->tensors.tensors();
  std::vector<TensorSource> sources;
  for (size_t l = 0; l < source->weights.layers.size(); ++l) {
    const LayerWeights& layer = source->weights.layers[l];
    const std::string experts = fmt::format("model.layers.{}.mlp.experts.", l);
    for (const auto& [kind, matrices, error] :
         {std::tuple("gate_up_proj", &layer.mlp1, &gate_up), std::tuple("down_proj", &layer.mlp2, &down)}) {
      sources.push_back(quantised(experts + kind, std::get<View<const bf16, 3>>(*matrices), *error));
      rest.erase(experts + kind);
    }
  }
  for (const auto& [name, tensor] : rest) sources.push_back(copied(name, tensor));

  Quantized quantized;
  for (const auto& [name, tensor] : source->tensors.tensors())
    quantized.bytes_read += static_cast<int64_t>(tensor.bytes.size());
  try {
    const auto bytes = write_safetensors(to / "model.safetensors", sources, pool, progress);
    if (!bytes) return bytes.error();
    quantized.bytes_written = *bytes;
  } catch (const CannotQuantize& refused) {
    return Error{
        fmt::format("{}: {}: MXFP4 has no such numbers, fetch the checkpoint again or train it longer",
                    source->tensors.path(), refused.why)};
  }
  if (const auto status = copy_json_files(from, to); !status) return status.error();
  if (const auto status = write_text_file(to / "config.json", source->new_config); !status)
    return status.error();
  quantized.gate_up_error = gate_up.rms();
  quantized.down_error    = down.rms();
  return quantized;
}

}  // namespace fathom::model
