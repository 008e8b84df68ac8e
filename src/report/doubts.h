// What a reader must not believe, and what did not run.
#pragma once

#include <map>
#include <string>

#include "lab/record.h"
#include "report/context.h"

namespace fathom::report {

std::string remedy(const lab::Skip& skip);       // tells a person how to make a skipped variant run
std::string outcome_word(lab::Outcome outcome);  // "ran out of time"
std::string skip_words(const std::optional<lab::Skip>& skip);  // "needs_library, libdnnl.so.3"
// "caught by poison: 3 of 1024 elements ..."; the parts that are known.
std::string why_text(const lab::VariantRecord& variant);

bool is_stale(const lab::ExperimentRecord& experiment, const ReportContext& context);

struct DoubtCounts {  // results, points and experiments
  int invalid = 0, failed = 0, advisory = 0, stale = 0, above_limit = 0;
};
DoubtCounts doubts_of(const lab::RunRecord& run, const ReportContext& context);
// A line for each kind of doubt with its count and the experiments concerned; one line when there is none.
std::string doubts_html(const lab::RunRecord& run, const ReportContext& context);
std::string failures_html(const lab::RunRecord& run);  // a table, empty when nothing failed
// A line for each reason and need with its count, which opens into the list. Empty when nothing was skipped.
std::string skips_html(const lab::RunRecord& run);

}  // namespace fathom::report
