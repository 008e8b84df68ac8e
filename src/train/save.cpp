#include "train/save.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/atomic_file.h"
#include "core/dtype.h"
#include "core/read_file.h"
#include "model/safetensors_writer.h"

namespace fathom::train {
namespace {

namespace fs   = std::filesystem;
using SaveJson = nlohmann::ordered_json;

// Beginnings of names: what a tokenizer and generation need.
constexpr std::string_view kCopied[] = {"tokenizer", "special_tokens_map", "added_tokens", "vocab",
                                        "merges",    "generation_config",  "chat_template"};

// config.json of the same model with experts in BF16.
Result<std::string> bf16_config(const fs::path& source) {
  const auto text = read_file(source / "config.json");
  if (!text) return text.error();
  SaveJson config = SaveJson::parse(*text);
  config.erase("quantization_config");
  return config.dump(2);
}

// BF16; matrices of experts, [E, out, in] here, are stored as [E, in, out].
model::TensorSource bf16_source(const TensorPlace& place, std::span<const float> numbers) {
  const bool experts         = place.shape.size() == 3;
  std::vector<int64_t> shape = place.shape;
  if (experts) std::swap(shape[1], shape[2]);
  const int64_t rows = place.size / shape.back(), columns = shape.back();
  return {.tensors = {{place.name, DType::bf16, shape}},
          .rows    = rows,
          .fill    = [=](int64_t first, int64_t n, std::span<const std::span<std::byte>> out) {
            auto* to = reinterpret_cast<bf16*>(out[0].data());
            for (int64_t row = first; row < first + n; ++row)
              for (int64_t c = 0; c < columns; ++c) {
                const int64_t at =
                    experts ? (row / shape[1] * columns + c) * shape[1] + row % shape[1] : row * columns + c;
                *to++ = bf16(numbers[static_cast<size_t>(at)]);
              }
          }};
}

model::TensorSource fp32_source(const TensorPlace& place, std::span<const float> numbers) {
  const int64_t columns = place.shape.back();
  return {.tensors = {{place.name, DType::fp32, place.shape}},
          .rows    = place.size / columns,
          .fill    = [=](int64_t first, int64_t n, std::span<const std::span<std::byte>> out) {
            std::memcpy(out[0].data(), numbers.data() + first * columns,
                           static_cast<size_t>(n * columns) * sizeof(float));
          }};
}

}  // namespace

Status can_save_checkpoint(const fs::path& folder, const fs::path& source,
                           const model::Checkpoint& checkpoint) {
  if (checkpoint.weights.layout == model::Layout::original)
    return Error{
        fmt::format("{}: this checkpoint has the names of the `original` folder: give the one with Hugging "
                    "Face's names",
                    source.string())};
  const auto config = bf16_config(source);
  if (!config) return config.error();
  const auto read = model::parse_config(*config, (source / "config.json").string());
  if (!read) return read.error();
  if (read->mxfp4_experts)
    return Error{
        fmt::format("{}: says nothing of how its experts are stored, so it cannot say that they are BF16",
                    (source / "config.json").string())};
  std::error_code none;
  const bool there = fs::exists(folder, none);
  {
    const auto file =
        NewFile::create(folder / "model.safetensors", 2 * model::footprint(checkpoint.config).parameters);
    if (!file) return file.error();
  }
  if (!there) fs::remove(folder, none);
  return Ok{};
}

Result<int64_t> save_checkpoint(const fs::path& folder, const fs::path& source, const Parameters& parameters,
                                ThreadPool& threads) {
  const auto config = bf16_config(source);
  if (!config) return config.error();
  std::error_code none;
  fs::remove(folder / "config.json", none);  // written last: a folder without it holds no model
  std::vector<model::TensorSource> sources;
  for (const TensorPlace& place : parameters.places())
    sources.push_back(bf16_source(place, parameters.of(place)));
  auto bytes = model::write_safetensors(folder / "model.safetensors", sources, threads);
  if (!bytes) return bytes.error();
  for (const auto& entry : fs::directory_iterator(source)) {
    const fs::path name     = entry.path().filename();
    const bool of_tokenizer = std::ranges::any_of(
        kCopied, [&](std::string_view beginning) { return name.string().starts_with(beginning); });
    if (!entry.is_regular_file() || !of_tokenizer) continue;
    const auto text = read_file(entry.path());
    if (!text) return text.error();
    if (const Status written = write_text_file(folder / name, *text); !written) return written.error();
  }
  if (const Status written = write_text_file(folder / "config.json", *config + "\n"); !written)
    return written.error();
  return bytes;
}

Status save_adapter(const fs::path& folder, const fs::path& base, const Lora& lora, ThreadPool& threads) {
  std::vector<model::TensorSource> sources;
  for (const TensorPlace& place : lora.places())
    sources.push_back(fp32_source(
        place, lora.all().subspan(static_cast<size_t>(place.offset), static_cast<size_t>(place.size))));
  const auto bytes = model::write_safetensors(folder / "adapter_model.safetensors", sources, threads);
  if (!bytes) return bytes.error();
  const SaveJson config = {{"base_model_name_or_path", fs::absolute(base).string()},
                           {"bias", "none"},
                           {"fan_in_fan_out", false},
                           {"inference_mode", true},
                           {"lora_alpha", lora.alpha()},
                           {"lora_dropout", 0.0},
                           {"peft_type", "LORA"},
                           {"r", lora.rank()},
                           {"target_modules", {"q_proj", "k_proj", "v_proj", "o_proj"}},
                           {"task_type", "CAUSAL_LM"}};
  return write_text_file(folder / "adapter_config.json", config.dump(2) + "\n");
}

}  // namespace fathom::train
