// Compiles and loads the files of candidates (lab/candidate.h).
#pragma once

#include <string>
#include <typeinfo>

#include "core/result.h"
#include "lab/problem.h"

namespace fathom::lab {

struct Candidate {
  std::string id;       // of its variant
  std::string source;   // the file, as it was named
  std::string library;  // what compile_candidate() wrote
  int threads = 1;      // kAllThreads: every host thread
};

// Of a problem's type, with its size: sources that have changed since give another layout.
template <class P>
std::string problem_name() {
  return std::string(typeid(P).name()) + " of " + std::to_string(sizeof(P)) + " bytes";
}

// Compiles `source` for the experiment in `folder` (its path, with its headers), by $CXX or c++, with the
// flags of the experiments' own variants; `root` is the source tree. An error is what the compiler said, at
// most 40 lines, or that it took over two minutes.
// Asks `cancelled` now and then, if it is not null, and ends the compiler where it says so.
Status compile_candidate(const std::string& source, const std::string& root, const std::string& folder,
                         const std::string& library, bool (*cancelled)() = nullptr);

using CandidateLaunch = void (*)(const void* problem, Context& context);
// Loads a library for good. `problem`: the problem's name, as above. Throws std::runtime_error
// where the library cannot be loaded, has no FATHOM_CANDIDATE, or is for another problem.
CandidateLaunch load_candidate(const std::string& library, const std::string& problem);

}  // namespace fathom::lab
