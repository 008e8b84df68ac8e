// A training that has not ended, in a folder: training_state.json, and the safetensors file of fp32 numbers
// that it names, with their hashes. The JSON file is written last, and the numbers are on the disk then, so
// that a kill or a power cut at any moment leaves the state before whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "train/fine_tune.h"

namespace fathom::train {

// Replaces the state in the folder. `identity`, an object, says what the training is of: whoever goes on with
// it must have the same.
Status save_training_state(const std::filesystem::path& folder, const TrainingState& state,
                           const nlohmann::ordered_json& identity, ThreadPool& threads);

struct SavedTraining {
  int64_t steps = 0;
  std::string identity;             // JSON text
  std::filesystem::path numbers;    // the file
  std::vector<std::string> hashes;  // of weights, first and second moments
};

// None: the folder holds no state. An error: it cannot be read.
Result<std::optional<SavedTraining>> find_training_state(const std::filesystem::path& folder);

// An error says what is wrong with the file; `state` may have been changed then.
Status load_training_state(const SavedTraining& saved, TrainingState& state);

// The first key by which two identities differ, with both values: "--seed was 1, and is 2 now".
std::optional<std::string> first_change(const std::string& saved, const nlohmann::ordered_json& now);

void remove_training_state(const std::filesystem::path& folder);

}  // namespace fathom::train
