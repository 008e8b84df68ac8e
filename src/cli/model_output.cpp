#include "cli/model_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "cli/usage_error.h"

namespace fathom::cli {

namespace fs = std::filesystem;

void add_model_output_flags(CLI::App& verb, ModelOutputFlags& flags) {
  verb.add_option("out", flags.folder, "Folder for the new model")->required();
  verb.add_flag("--force", flags.force, "Replace the model that is there");
}

void check_model_folder_free(const ModelOutputFlags& flags) {
  const fs::path folder = flags.folder;
  if (fs::exists(folder) && !fs::is_directory(folder))
    throw UsageError(fmt::format("{}: no folder: name one, or one to create", flags.folder));
  if (fs::exists(folder / "model.safetensors.index.json"))
    throw UsageError(fmt::format("{}: holds a model in shards: name another folder", flags.folder));
  if (flags.force) return;
  for (const char* file : {"model.safetensors", "config.json"})
    if (fs::exists(folder / file))
      throw UsageError(fmt::format("{}: holds a model, {}: name another folder, or replace it by --force",
                                   flags.folder, file));
}

WriteProgress::WriteProgress(std::string file)
    : file_(std::move(file)), display_(stderr, terminal_columns(STDERR_FILENO)) {}

double WriteProgress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void WriteProgress::show(int64_t bytes_done, int64_t bytes_total) {
  constexpr int64_t kMega = 1'000'000;
  const double passed     = seconds();
  if (passed < 1 || bytes_done == 0 || bytes_done == bytes_total) return;
  const double left =
      passed * static_cast<double>(bytes_total - bytes_done) / static_cast<double>(bytes_done);
  display_.show({.experiment   = "MB of " + file_,
                 .done         = static_cast<int>(bytes_done / kMega),
                 .total        = static_cast<int>(bytes_total / kMega),
                 .seconds_left = left});
}

}  // namespace fathom::cli
