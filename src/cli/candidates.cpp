#include "cli/candidates.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "cli/ctrl_c.h"
#include "cli/number_check.h"
#include "cli/usage_error.h"
#include "core/atomic_file.h"
#include "core/read_file.h"
#include "core/source_tree.h"
#include "lab/registry.h"

namespace fathom::cli {

namespace fs = std::filesystem;

namespace {

std::string variant_name(const std::string& file) {
  std::string name = fs::path(file).stem().string();
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

std::string make_folder() {
  std::error_code error;
  std::string name = (fs::temp_directory_path(error) / "fathom_candidates_XXXXXX").string();
  if (error || !mkdtemp(name.data()))
    throw UsageError(
        "no folder for candidates can be made in /tmp, or in $TMPDIR: set it to one that can be written");
  return name;
}

}  // namespace

std::string candidate_source_tree() {
  std::error_code unknown;
  const fs::path program = fs::read_symlink("/proc/self/exe", unknown).parent_path();
  for (const std::string& from : {program.string(), std::string(".")})
    if (const auto root = find_source_tree(from)) return fs::absolute(*root).lexically_normal().string();
  throw UsageError(
      "--candidate needs Fathom's sources, for the headers of the experiment: run it in a clone");
}

void add_candidate_flags(CLI::App& verb, CandidateFlags& flags) {
  verb.add_option("--candidate", flags.files,
                  "A .cpp file of yours as one more variant of the experiment (docs/lab.md); repeatable")
      ->allow_extra_args(false);
  verb.add_option("--candidate-threads", flags.threads, "Threads of each candidate; 0: every host thread")
      ->check(whole_at_least(0))
      ->capture_default_str();
}

Candidates::Candidates(const CandidateFlags& flags, lab::Targets& targets, lab::RunOptions& options) {
  if (flags.files.empty()) return;
  if (targets.selections.size() != 1 || !targets.planned.empty())
    throw UsageError(fmt::format(
        "--candidate needs one experiment, e.g. `fathom run ch09:matmul_cpu --candidate {}`; {} are chosen",
        flags.files.front(), targets.selections.size() + targets.planned.size()));
  lab::Selection& selection = targets.selections.front();
  const std::string root    = candidate_source_tree();
  const std::string folder  = root + "/" + lab::find_experiment(selection.experiment)->folder;
  folder_                   = make_folder();
  try {
    for (const std::string& file : flags.files) {
      auto text = read_file(file);
      if (!text) throw UsageError("--candidate: " + text.error().message);
      const std::string id = variant_name(file);
      lab::Candidate candidate{
          .id = id, .source = file, .library = folder_ + "/" + id + ".so", .threads = flags.threads};
      value_or_usage_error(lab::add_candidate(selection.experiment, candidate));
      // A copy, so that what is kept is what was compiled.
      const std::string copy = folder_ + "/" + id + ".cpp";
      write_file_atomically(copy, *text);
      const CtrlC interruption;
      const Status compiled = lab::compile_candidate(copy, root, folder, candidate.library, &CtrlC::pressed);
      if (CtrlC::pressed()) throw std::runtime_error("interrupted while " + file + " was compiled");
      value_or_usage_error(compiled);
      texts_.push_back(*std::move(text));
      if (!selection.variants.empty()) selection.variants.push_back(id);
      candidates_.push_back(std::move(candidate));
    }
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
    throw;
  }
  options.candidates = candidates_;
}

Candidates::~Candidates() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

void Candidates::write_sources(const std::string& run_folder) const {
  if (candidates_.empty()) return;
  fs::create_directories(run_folder + "/candidates");
  for (size_t i = 0; i < candidates_.size(); ++i)
    write_file_atomically(run_folder + "/candidates/" + candidates_[i].id + ".cpp", texts_[i]);
}

lab::RunRecord Candidates::without(lab::RunRecord run) const {
  for (lab::ExperimentRecord& experiment : run.experiments)
    for (lab::PointRecord& point : experiment.points)
      std::erase_if(point.variants, [&](const lab::VariantRecord& variant) {
        return std::ranges::find(candidates_, variant.id, &lab::Candidate::id) != candidates_.end();
      });
  return run;
}

}  // namespace fathom::cli
