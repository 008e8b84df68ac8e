// Writes what was trained, in the forms that other tools read.
#pragma once

#include <cstdint>
#include <filesystem>

#include "core/result.h"
#include "core/thread_pool.h"
#include "model/checkpoint.h"
#include "train/lora.h"
#include "train/parameters.h"

namespace fathom::train {

// Whether save_checkpoint() will be able to: the source has Hugging Face's names, and the folder can be made
// and has room. Leaves nothing behind.
Status can_save_checkpoint(const std::filesystem::path& folder, const std::filesystem::path& source,
                           const model::Checkpoint& checkpoint);

// A checkpoint in Hugging Face's layout with experts in BF16 (`fathom model quantize` makes MXFP4 of them):
// `folder` gets model.safetensors, config.json without its quantization, and the source's files of its
// tokenizer and of generation. Returns the bytes of the weights.
Result<int64_t> save_checkpoint(const std::filesystem::path& folder, const std::filesystem::path& source,
                                const Parameters& parameters, ThreadPool& threads);

// Adapters in PEFT's layout, adapter_config.json and adapter_model.safetensors, in fp32. `base`: the name or
// folder of the model that they belong to.
Status save_adapter(const std::filesystem::path& folder, const std::filesystem::path& base, const Lora& lora,
                    ThreadPool& threads);

}  // namespace fathom::train
