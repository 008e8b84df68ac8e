// Quantizes BF16 experts to MXFP4, the format of the published checkpoints, and attention and (un)embedding
// to int8 if asked; or rounds experts to another format to see what it costs in quality.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "core/result.h"
#include "core/thread_pool.h"
#include "model/safetensors_writer.h"

namespace fathom::model {

// The `quantization_config` of published MXFP4 checkpoints.
nlohmann::json mxfp4_quantization();

struct Quantized {
  int64_t bytes_read = 0, bytes_written = 0;  // of weights
  // Root mean square of the errors over that of the weights, over all layers and experts.
  double gate_up_error = 0, down_error = 0;         // 0 if the experts were in MXFP4 before
  double attention_error = 0, embedding_error = 0;  // 0 if they stay in BF16
};

// The matrices of attention and of the (un)embedding.
enum class DenseFormat {
  bf16,
  int8,  // groups of 32 along `in`, a bf16 scale each (core/int8_group.h); for CPUs
};

// Reads a checkpoint of layout hf_bf16 (model/weights.h) and writes one of layout hf_mxfp4 in one file.
// Blocks of 32 along `in` are quantized independently (core/mxfp4_nvfp4.h). All other tensors and the
// folder's other JSON files (tokenizer.json, generation_config.json) are copied. Experts that are in MXFP4,
// of any layout, are copied too, if DenseFormat::int8 leaves something to do. Fails if `from` is no such
// checkpoint, or if a weight to quantize is infinite or NaN; then no model is written.
Result<Quantized> quantize_model(const std::filesystem::path& from, const std::filesystem::path& to,
                                 DenseFormat dense, ThreadPool& pool, const WriteProgress& progress = {});

enum class ExpertFormat {
  bf16,   // not rounded
  fp8,    // E4M3, an fp32 scale for each output: largest / 448
  mxfp4,  // blocks of 32 along `in`
  nvfp4,  // blocks of 16 along `in`, and an fp32 scale for each expert's matrix
};

// Fake quantization: writes a checkpoint of layout hf_bf16 whose experts' weights are those of `from`
// (hf_bf16, or hf_mxfp4, which BF16 holds exactly), rounded to `format`. The product of a code and its scales
// is rounded to BF16 again, by at most 2^-9 of it. Copies the rest and fails as quantize_model() does, and
// where `in` is no whole number of blocks.
Result<Quantized> fake_quantize_model(const std::filesystem::path& from, const std::filesystem::path& to,
                                      ExpertFormat format, ThreadPool& pool,
                                      const WriteProgress& progress = {});

}  // namespace fathom::model
