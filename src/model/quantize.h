// From BF16 experts to MXFP4: what a fine-tuned checkpoint needs to be as small as a published one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "core/result.h"
#include "core/thread_pool.h"
#include "model/safetensors_writer.h"

namespace fathom::model {

// `quantization_config` of a checkpoint in MXFP4, as the published ones have it.
nlohmann::json mxfp4_quantization();

struct Quantized {
  int64_t bytes_read = 0, bytes_written = 0;  // of weights
  // Root of the summed squares of the errors over that of the weights, all layers and experts together.
  double gate_up_error = 0, down_error = 0;
};

// Reads a checkpoint of layout hf_bf16 (model/weights.h) and writes one of layout hf_mxfp4, in one file. Each
// block of 32 along `in` is rounded by itself (core/fp4_blocks.h); all else is copied byte for byte, and so
// are the folder's other JSON files (tokenizer.json, generation_config.json). An error where `from` is no
// such checkpoint, or a weight of an expert is infinite or NaN; then `to` has no new model.
Result<Quantized> quantize_model(const std::filesystem::path& from, const std::filesystem::path& to,
                                 ThreadPool& pool, const WriteProgress& progress = {});

}  // namespace fathom::model
