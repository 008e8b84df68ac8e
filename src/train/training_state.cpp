#include "train/training_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/atomic_file.h"
#include "core/read_file.h"
#include "model/safetensors.h"
#include "model/safetensors_writer.h"

namespace fathom::train {
namespace {

namespace fs    = std::filesystem;
using StateJson = nlohmann::ordered_json;

constexpr const char* kStateFile  = "training_state.json";
constexpr std::string_view kState = "training_state-";
constexpr const char* kSchema     = "fathom.training_state/1";

struct NamedNumbers {
  const char* name;
  std::span<float> numbers;
};
std::vector<NamedNumbers> numbers_of(const TrainingState& state) {
  return {{"weights", state.weights},
          {"first_moments", state.first_moments},
          {"second_moments", state.second_moments}};
}

model::TensorSource source_of(const NamedNumbers& one) {
  constexpr int64_t kRow = 1 << 16;  // a row is a part of the file that one thread writes
  const auto size        = std::ssize(one.numbers);
  const int64_t columns  = size % kRow == 0 ? kRow : 1;
  return {.tensors = {{one.name, DType::fp32, {size / columns, columns}}},
          .rows    = size / columns,
          .fill    = [=](int64_t first, int64_t n, std::span<const std::span<std::byte>> out) {
            std::memcpy(out[0].data(), one.numbers.data() + first * columns,
                           static_cast<size_t>(n * columns) * sizeof(float));
          }};
}

void remove_numbers(const fs::path& folder, const std::string& but) {
  std::error_code none;
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kState) && name != but) old.push_back(entry.path());
  }
  for (const fs::path& file : old) fs::remove(file, none);
}

}  // namespace

Status save_training_state(const fs::path& folder, const TrainingState& state, const StateJson& identity,
                           ThreadPool& threads) {
  const std::string name = fmt::format("{}{}.safetensors", kState, state.steps);
  std::vector<model::TensorSource> sources;
  for (const NamedNumbers& one : numbers_of(state)) sources.push_back(source_of(one));
  if (const auto written = model::write_safetensors(folder / name, sources, threads); !written)
    return written.error();
  const StateJson json = {
      {"schema", kSchema}, {"steps", state.steps}, {"numbers", name}, {"identity", identity}};
  if (const Status written = write_text_file(folder / kStateFile, json.dump(2) + "\n"); !written)
    return written.error();
  remove_numbers(folder, name);
  return Ok{};
}

Result<std::optional<SavedTraining>> find_training_state(const fs::path& folder) {
  const fs::path file = folder / kStateFile;
  std::error_code none;
  if (!fs::exists(file, none)) return std::optional<SavedTraining>();
  const auto text = read_file(file);
  if (!text) return text.error();
  const StateJson json = StateJson::parse(*text, nullptr, false);
  const auto has       = [&](const char* key, auto is) { return json.contains(key) && (json[key].*is)(); };
  if (!json.is_object() || json.value("schema", StateJson()) != kSchema ||
      !has("steps", &StateJson::is_number_integer) || !has("numbers", &StateJson::is_string) ||
      !has("identity", &StateJson::is_object))
    return Error{fmt::format("{}: is no state of a training: begin anew with --force", file.string())};
  return std::optional(
      SavedTraining{.steps    = json["steps"].get<int64_t>(),
                    .identity = json["identity"].dump(),
                    .numbers  = folder / fs::path(json["numbers"].get<std::string>()).filename()});
}

Status load_training_state(const SavedTraining& saved, TrainingState& state) {
  const auto file = model::Safetensors::open(saved.numbers);
  if (!file) return file.error();
  for (const NamedNumbers& one : numbers_of(state)) {
    const model::Tensor* tensor = file->find(one.name);
    if (!tensor || tensor->dtype != DType::fp32 || tensor->bytes.size() != one.numbers.size_bytes())
      return Error{fmt::format("{}: has not {} numbers of {}: it belongs to another training",
                               saved.numbers.string(), one.numbers.size(), one.name)};
    std::memcpy(one.numbers.data(), tensor->bytes.data(), tensor->bytes.size());
  }
  state.steps = saved.steps;
  return Ok{};
}

std::optional<std::string> first_change(const std::string& saved, const StateJson& now) {
  const StateJson before = StateJson::parse(saved);
  for (const auto& [key, value] : now.items()) {
    const StateJson was = before.value(key, StateJson());
    if (was != value) return fmt::format("{} was {}, and is {} now", key, was.dump(), value.dump());
  }
  return std::nullopt;
}

void remove_training_state(const fs::path& folder) {
  std::error_code none;
  fs::remove(folder / kStateFile, none);
  remove_numbers(folder, "");
}

}  // namespace fathom::train
