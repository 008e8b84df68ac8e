#include "train/training_state.h"

#include <fmt/format.h>
#include <xxhash.h>

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
  return {.tensors = {{one.name, DType::fp32, {std::ssize(one.numbers)}}},
          .rows    = std::ssize(one.numbers),
          .fill    = [=](int64_t first, int64_t n, std::span<const std::span<std::byte>> out) {
            std::memcpy(out[0].data(), one.numbers.data() + first, static_cast<size_t>(n) * sizeof(float));
          }};
}

std::string hash_of(std::span<const float> numbers) {
  return fmt::format("{:016x}", XXH3_64bits(numbers.data(), numbers.size_bytes()));
}

// Of other states, and what killed trainings left of files that they were writing.
void remove_others(const fs::path& folder, const std::string& numbers) {
  std::error_code none;
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    const bool partial     = name.starts_with("training_") && name.ends_with(".partial");
    if (partial || (name.starts_with(kState) && name != numbers)) old.push_back(entry.path());
  }
  for (const fs::path& file : old) fs::remove(file, none);
}

}  // namespace

Status save_training_state(const fs::path& folder, const TrainingState& state, const StateJson& identity,
                           ThreadPool& threads) {
  const std::string name = fmt::format("{}{}.safetensors", kState, state.steps);
  std::vector<model::TensorSource> sources;
  StateJson hashes = StateJson::array();
  for (const NamedNumbers& one : numbers_of(state)) {
    sources.push_back(source_of(one));
    hashes.push_back(hash_of(one.numbers));
  }
  if (const auto written = model::write_safetensors(folder / name, sources, threads); !written)
    return written.error();
  const StateJson json = {{"schema", kSchema},
                          {"steps", state.steps},
                          {"numbers", name},
                          {"hashes", hashes},
                          {"identity", identity}};
  if (const Status written = write_text_file(folder / kStateFile, json.dump(2) + "\n"); !written)
    return written.error();
  remove_others(folder, name);
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
      !has("identity", &StateJson::is_object) || !has("hashes", &StateJson::is_array) ||
      !std::ranges::all_of(json["hashes"], [](const StateJson& hash) { return hash.is_string(); }))
    return Error{fmt::format("{}: is no state of a training: begin anew with --force", file.string())};
  return std::optional(
      SavedTraining{.steps    = json["steps"].get<int64_t>(),
                    .identity = json["identity"].dump(),
                    .numbers  = folder / fs::path(json["numbers"].get<std::string>()).filename(),
                    .hashes   = json["hashes"].get<std::vector<std::string>>()});
}

Status load_training_state(const SavedTraining& saved, TrainingState& state) {
  const auto file = model::Safetensors::open(saved.numbers);
  if (!file) return file.error();
  for (size_t i = 0; const NamedNumbers& one : numbers_of(state)) {
    const model::Tensor* tensor = file->find(one.name);
    if (!tensor || tensor->dtype != DType::fp32 || tensor->bytes.size() != one.numbers.size_bytes())
      return Error{fmt::format("{}: has not {} numbers of {}: it belongs to another training",
                               saved.numbers.string(), one.numbers.size(), one.name)};
    std::memcpy(one.numbers.data(), tensor->bytes.data(), tensor->bytes.size());
    if (i >= saved.hashes.size() || hash_of(one.numbers) != saved.hashes[i++])
      return Error{fmt::format("{}: {} are not those that were saved: the file is damaged",
                               saved.numbers.string(), one.name)};
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
  remove_others(folder, "");
}

}  // namespace fathom::train
