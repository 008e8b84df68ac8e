// The folder that --model names, and opening what is in it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "model/checkpoint.h"

namespace fathom::cli {

// `named`, or the bundled model's folder if it is empty (model/bundled_model.h). Throws UsageError if there
// is none.
std::filesystem::path model_folder(const std::string& named);

// The file of the bundled model's tasks, wherever the program runs.
std::string bundled_grammar();

// Both throw UsageError where the checkpoint cannot be read, and say on stderr if tensors of it were rounded.
model::Checkpoint open_checkpoint(const std::filesystem::path& folder,
                                  model::Safetensors::Load load = model::Safetensors::Load::mapped);
std::unique_ptr<engine::Engine> open_engine(const std::filesystem::path& folder,
                                            const engine::EngineConfig& config);

}  // namespace fathom::cli
