// The most instructive results of a run, each in one sentence: chosen by rule, so that a report needs no
// author. Only headline points count; advisory, invalid and wrong results are never among them.
#pragma once

#include <string>
#include <vector>

#include "lab/record.h"

namespace fathom::report {

struct Lesson {
  size_t experiment = 0;  // position in the run
  std::string kind;       // "Largest gain"
  std::string sentence;   // Markdown, from a verb on: "`tiled` is 9.8× as fast as `naive`."
};

// At most `most`, each of another experiment. In this order, as far as the run has them: the largest gain,
// the result nearest to its limit, the prediction that failed by most, the optimization that cost most, the
// library furthest ahead of us, the most that is left to gain; then further gains by size.
std::vector<Lesson> lessons_of(const lab::RunRecord& run, size_t most = 5);

}  // namespace fathom::report
