// fathom model make: a checkpoint with random weights.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <string>

#include "cli/model_output.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/atomic_file.h"
#include "core/cpus.h"
#include "core/exit_code.h"
#include "core/thread_pool.h"
#include "model/config.h"
#include "model/synthetic_checkpoint.h"
#include "model/synthetic_tokenizer.h"

namespace fathom::cli {
namespace {

const std::map<std::string, model::ModelShape> kShapes = {{"tiny", model::ModelShape::tiny},
                                                          {"gpt-oss-20b", model::ModelShape::gpt_oss_20b},
                                                          {"gpt-oss-120b", model::ModelShape::gpt_oss_120b}};

struct MakeFlags {
  std::string shape = "tiny";
  model::SyntheticCheckpointOptions options;
  bool tokenizer = false;
  ModelOutputFlags target;
};

void make(MakeFlags& flags) {
  flags.options.shape = kShapes.at(flags.shape);
  check_model_folder_free(flags.target);
  const std::string& folder = flags.target.folder;
  WriteProgress progress(folder + "/model.safetensors");
  ThreadPool pool(host_threads());
  const auto bytes = model::make_synthetic_checkpoint(
      flags.options, folder, pool, [&](int64_t done, int64_t total) { progress.show(done, total); });
  progress.clear();
  if (!bytes) throw UsageError(bytes.error().message);
  fmt::print(
      "{}: config.json and model.safetensors, {:.1f} MB in {}: shape {}, {}, random weights of seed {}\n",
      folder, static_cast<double>(*bytes) * 1e-6, duration_text(progress.seconds()), flags.shape,
      flags.options.bf16 ? "bf16" : "MXFP4", flags.options.seed);
  if (!flags.tokenizer)
    return fmt::print("It has no tokenizer: prompts go in as token ids (--tokenizer makes one up).\n");
  const auto config = value_or_usage_error(model::read_config(folder + "/config.json"));
  if (config.vocab_size < 256)
    throw UsageError(
        fmt::format("a vocabulary of {} has no room for the 256 bytes of a tokenizer: --vocab 256 or more",
                    config.vocab_size));
  value_or_usage_error(
      write_text_file(folder + "/tokenizer.json", model::synthetic_tokenizer_json(config.vocab_size)));
}

}  // namespace

void add_model_make(CLI::App& model_verb, int& exit_code) {
  auto flags = std::make_shared<MakeFlags>();
  CLI::App& verb =
      *model_verb.add_subcommand("make", "A checkpoint with random weights, to measure and to test");
  add_model_output_flags(verb, flags->target);
  verb.add_option("--shape", flags->shape, "tiny (default), gpt-oss-20b or gpt-oss-120b")
      ->check(CLI::IsMember(kShapes).description(""));
  verb.add_option("--layers", flags->options.layers, "Layers (default: the shape's)");
  verb.add_option("--experts", flags->options.experts, "Experts per layer (default: the shape's)");
  verb.add_option("--vocab", flags->options.vocab, "Tokens of the vocabulary (default: the shape's)");
  verb.add_option("--seed", flags->options.seed, "Seed of the weights; default 0");
  verb.add_flag("--tokenizer", flags->tokenizer,
                "And a tokenizer.json of made-up words, so that it can be served");
  verb.add_flag("--bf16", flags->options.bf16, "Experts in BF16, as fine-tuning leaves them; default MXFP4");
  verb.callback([flags, &exit_code] {
    make(*flags);
    exit_code = kExitOk;
  });
}

}  // namespace fathom::cli
