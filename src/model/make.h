// Checkpoints of gpt-oss with random weights: as large, as fast and as deep as the published ones, and with
// nothing to say. Files and names are Hugging Face's, in MXFP4 or BF16 (model/weights.h); no tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/result.h"
#include "core/thread_pool.h"
#include "model/safetensors_writer.h"

namespace fathom::model {

enum class Shape {
  tiny,  // a test's: 4 layers, 8 experts, a vocabulary of 384, hidden size 64
  gpt_oss_20b,
  gpt_oss_120b,
};

struct MakeOptions {
  Shape shape = Shape::tiny;
  std::optional<int64_t> layers, experts, vocab;  // in place of the shape's own
  uint64_t seed = 0;
  bool bf16     = false;  // un-quantised: of one seed, the MXFP4 checkpoint is the quantisation of this one
};

// What config.json says, its keys as Hugging Face writes them. An error where the options make no model.
Result<std::string> config_text(const MakeOptions& options);

// Writes config.json and model.safetensors into `folder`. The weights are a function of the shape, the seed
// and the tensor's name alone: a model with fewer layers has the first ones of a deeper model. They are
// normal, so wide that every feature of the architecture shows in the logits (clamps, sinks, windows, biases)
// and so narrow that activations stay within a few units at any depth. Returns the bytes of the weights'
// file.
Result<int64_t> make_model(const MakeOptions& options, const std::filesystem::path& folder, ThreadPool& pool,
                           const WriteProgress& progress = {});

}  // namespace fathom::model
