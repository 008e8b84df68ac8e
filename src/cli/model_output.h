// Shared by the verbs that write a model: the flags of the output folder, and the progress of writing.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <string>

#include "cli/progress.h"

namespace fathom::cli {

struct ModelOutputFlags {
  std::string folder;
  bool force = false;
};

void add_model_output_flags(CLI::App& verb, ModelOutputFlags& flags);

// Throws UsageError if the folder already holds a model, unless --force was given. A sharded model is never
// replaced: these verbs write a single file, which the index of the shards would hide.
void check_model_folder_free(const ModelOutputFlags& flags);

// Progress of writing one large file. Shows nothing in the first second.
class WriteProgress {
 public:
  explicit WriteProgress(std::string file);
  void show(int64_t bytes_done, int64_t bytes_total);
  void clear() { display_.clear(); }
  double seconds() const;  // since the beginning

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::string file_;
  ProgressDisplay display_;
};

}  // namespace fathom::cli
