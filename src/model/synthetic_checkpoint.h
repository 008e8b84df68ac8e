// Makes gpt-oss checkpoints with random weights and the published sizes, for benchmarks and tests. Files and
// tensor names are Hugging Face's, in MXFP4 or BF16 (model/weights.h). No tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/result.h"
#include "core/thread_pool.h"
#include "model/safetensors_writer.h"

namespace fathom::model {

enum class ModelShape {
  tiny,  // for tests: 4 layers, 8 experts, a vocabulary of 384, hidden size 64
  gpt_oss_20b,
  gpt_oss_120b,
};

struct SyntheticCheckpointOptions {
  ModelShape shape = ModelShape::tiny;
  std::optional<int64_t> layers, experts, vocab;  // override those of the shape
  uint64_t seed = 0;
  bool bf16     = false;  // the MXFP4 checkpoint of the same seed is the quantization of this one
};

// The text of config.json, in Hugging Face's spelling. Fails for invalid options.
Result<std::string> synthetic_config(const SyntheticCheckpointOptions& options);

// Writes config.json and model.safetensors into `folder`. Weights depend on the shape, the seed and the
// tensor's name only, so a model with fewer layers has the first layers of a deeper one. They are normally
// distributed: wide enough that every feature of the architecture (clamps, sinks, windows, biases) affects
// the logits, and narrow enough that activations stay within a few units at any depth. Returns the size of
// the weights' file in bytes.
Result<int64_t> make_synthetic_checkpoint(const SyntheticCheckpointOptions& options,
                                          const std::filesystem::path& folder, ThreadPool& pool,
                                          const WriteProgress& progress = {});

}  // namespace fathom::model
