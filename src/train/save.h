// Writes what was trained, in the forms that other tools read.
#pragma once

#include <cstdint>
#include <filesystem>

#include "core/result.h"
#include "core/thread_pool.h"
#include "train/lora.h"
#include "train/parameters.h"

namespace fathom::train {

// A checkpoint in Hugging Face's layout with experts in BF16 (`fathom model quantize` makes MXFP4 of them):
// `folder` gets model.safetensors, config.json without its quantization, and the source's tokenizer and
// generation_config. Returns the bytes of the weights.
Result<int64_t> save_checkpoint(const std::filesystem::path& folder, const std::filesystem::path& source,
                                const Parameters& parameters, ThreadPool& threads);

// Adapters in PEFT's layout, adapter_config.json and adapter_model.safetensors, in fp32. `base`: the name or
// folder of the model that they belong to.
Status save_adapter(const std::filesystem::path& folder, const std::filesystem::path& base, const Lora& lora,
                    ThreadPool& threads);

}  // namespace fathom::train
