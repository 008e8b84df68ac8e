// What `fathom optimize` asks a language model, and what it takes from the reply.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/experiment_info.h"

namespace fathom::cli {

// A candidate and what came of it, in words for the model.
struct Tried {
  std::string source;   // empty: the reply had none
  std::string outcome;  // "out(3) is 1, expected 2"
};

// The same in every prompt of a search.
struct KernelTask {
  std::string instructions;  // default_instructions(), or the user's
  std::string experiment;    // question, limit, sizes
  std::string machine;
  std::vector<std::pair<std::string, std::string>> files;  // name and text
  std::string measured;                                    // the declared variants, as a table
};

// How a candidate is written, and what the lab does with it. The text that --prompt replaces.
std::string default_instructions();

std::string experiment_text(const lab::ExperimentInfo& experiment, const std::vector<lab::Axis>& timed);
std::string machine_text(int threads);
// The headers of the experiment's folder under `root`, and the files of its variants `ids` where a variant
// has one of its name.
std::vector<std::pair<std::string, std::string>> files_for(const std::string& root,
                                                           const lab::ExperimentInfo& experiment,
                                                           const std::vector<std::string>& ids);

// `best`: the fastest right candidate so far; `last`: the one before this prompt. Null where there is none.
std::string prompt_text(const KernelTask& task, const Tried* best, const Tried* last);

// The last fenced block that has FATHOM_CANDIDATE in it, without its fences.
std::optional<std::string> code_of(std::string_view reply);

}  // namespace fathom::cli
