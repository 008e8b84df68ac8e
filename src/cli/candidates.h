// --candidate: files of the user's own as variants of the experiment that is run (lab/candidate.h).
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "lab/record.h"
#include "lab/run_options.h"
#include "lab/target.h"

namespace fathom::cli {

struct CandidateFlags {
  std::vector<std::string> files;
  int threads = 1;
};

void add_candidate_flags(CLI::App& verb, CandidateFlags& flags);

// The source tree whose headers candidates include: this program's, or the one around the working directory.
// Throws UsageError where there is none.
std::string candidate_source_tree();

// Compiles the files into a folder of their own, which goes with this object, and adds their variants to the
// experiment: "mine.cpp" is variant "mine".
class Candidates {
 public:
  // Changes `targets` and `options` so that the variants run. Throws UsageError for a file that is missing or
  // does not compile, and where `targets` is not one experiment that takes candidates.
  Candidates(const CandidateFlags& flags, lab::Targets& targets, lab::RunOptions& options);
  ~Candidates();
  Candidates(const Candidates&)            = delete;
  Candidates& operator=(const Candidates&) = delete;

  // Writes the files, as they were compiled, to `run_folder`/candidates.
  void write_sources(const std::string& run_folder) const;
  // `run` without what was measured of them: a file of that name may hold another kernel tomorrow.
  lab::RunRecord without(lab::RunRecord run) const;

 private:
  std::string folder_;
  std::vector<lab::Candidate> candidates_;
  std::vector<std::string> texts_;  // of their files
};

}  // namespace fathom::cli
