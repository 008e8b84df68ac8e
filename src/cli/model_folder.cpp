#include "cli/model_folder.h"

#include <fmt/format.h>

#include "cli/usage_error.h"
#include "model/bundled_model.h"

namespace fathom::cli {
namespace {

void say_what_was_rounded(const std::filesystem::path& folder, const model::Weights& weights) {
  if (weights.rounded_tensors > 0)
    fmt::print(stderr,
               "{}: {} tensors are FP32 or FP16; they are rounded to BF16, in which Fathom computes\n",
               folder.string(), weights.rounded_tensors);
}

}  // namespace

std::filesystem::path model_folder(const std::string& named) {
  if (!named.empty()) return named;
  const auto bundled = model::bundled_model_folder();
  if (!bundled)
    throw UsageError("no model: give --model FOLDER or set FATHOM_MODEL; " + bundled.error().message);
  return *bundled;
}

std::string bundled_grammar() {
  return (model::bundled_model_folder().value_or("models/tiny") / "tasks.toml").string();
}

model::Checkpoint open_checkpoint(const std::filesystem::path& folder, model::Safetensors::Load load) {
  auto checkpoint = value_or_usage_error(model::Checkpoint::open(folder, load));
  say_what_was_rounded(folder, checkpoint.weights);
  return checkpoint;
}

std::unique_ptr<engine::Engine> open_engine(const std::filesystem::path& folder,
                                            const engine::EngineConfig& config) {
  auto engine = value_or_usage_error(engine::Engine::open(folder, config));
  say_what_was_rounded(folder, engine->checkpoint().weights);
  return engine;
}

}  // namespace fathom::cli
