// fathom model quantize: converts a checkpoint's experts from BF16 to MXFP4, and attention and (un)embedding
// to int8; or rounds experts to another format.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cli/model_output.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/cpus.h"
#include "core/exit_code.h"
#include "core/thread_pool.h"
#include "model/quantize.h"

namespace fathom::cli {
namespace {

struct QuantizeFlags {
  std::string from;
  std::optional<model::ExpertFormat> fake;
  model::DenseFormat dense = model::DenseFormat::bf16;
  ModelOutputFlags target;
};

void quantize(const QuantizeFlags& flags) {
  check_model_folder_free(flags.target);
  WriteProgress progress(flags.target.folder + "/model.safetensors");
  ThreadPool pool(host_threads());
  const auto show = [&](int64_t done, int64_t total) { progress.show(done, total); };
  const auto quantized =
      flags.fake ? model::fake_quantize_model(flags.from, flags.target.folder, *flags.fake, pool, show)
                 : model::quantize_model(flags.from, flags.target.folder, flags.dense, pool, show);
  progress.clear();
  if (!quantized) throw UsageError(quantized.error().message);
  const auto megabytes = [](int64_t bytes) { return static_cast<double>(bytes) * 1e-6; };
  fmt::print("{}: {:.1f} MB of weights from {:.1f} MB in {}\n", flags.target.folder,
             megabytes(quantized->bytes_written), megabytes(quantized->bytes_read),
             duration_text(progress.seconds()));
  fmt::print("  relative rms error\n");
  for (const auto& [what, error] : {std::pair{"gate_up_proj", quantized->gate_up_error},
                                    {"down_proj", quantized->down_error},
                                    {"attention", quantized->attention_error},
                                    {"(un)embedding", quantized->embedding_error}})
    if (error > 0) fmt::print("  {:<14} {:.2f} %\n", what, 100 * error);
}

}  // namespace

void add_model_quantize(CLI::App& model_verb, int& exit_code) {
  auto flags = std::make_shared<QuantizeFlags>();
  CLI::App& verb =
      *model_verb.add_subcommand("quantize", "A checkpoint with its experts in MXFP4, from one in BF16");
  verb.add_option("in", flags->from, "Folder with config.json and *.safetensors")->required();
  const std::map<std::string, model::ExpertFormat> formats = {{"bf16", model::ExpertFormat::bf16},
                                                              {"fp8", model::ExpertFormat::fp8},
                                                              {"mxfp4", model::ExpertFormat::mxfp4},
                                                              {"nvfp4", model::ExpertFormat::nvfp4}};
  verb.add_option_function<std::string>(
          "--fake", [flags, formats](const std::string& name) { flags->fake = formats.at(name); },
          "Round the experts to this format and keep them in BF16, to see with `model eval --against` what "
          "it "
          "costs in quality")
      ->check(CLI::IsMember(formats));
  verb.add_option_function<std::string>(
          "--dense",
          [flags](const std::string& name) {
            flags->dense = name == "int8" ? model::DenseFormat::int8 : model::DenseFormat::bf16;
          },
          "Attention and (un)embedding: bf16 (default: as they are), or int8 with a scale for each 32 "
          "inputs, "
          "for CPUs: half the bytes to read for a token. The experts may be in MXFP4 already")
      ->check(CLI::IsMember({"bf16", "int8"}))
      ->excludes(verb.get_option("--fake"));
  add_model_output_flags(verb, flags->target);
  verb.callback([flags, &exit_code] {
    quantize(*flags);
    exit_code = kExitOk;
  });
}

}  // namespace fathom::cli
