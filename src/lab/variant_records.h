// Where an experiment is checked and timed, and the records of its variants before anything ran.
#pragma once

#include <optional>
#include <vector>

#include "lab/experiment_info.h"
#include "lab/measure_options.h"
#include "lab/record.h"

namespace fathom::lab {

// The points to prove: the axes of check_at; axes that it does not name keep the first of their timed values.
std::vector<Point> check_points(const ExperimentInfo& experiment);
// The timed points after -a, --quick and --aa, without those that an earlier process finished.
std::vector<Point> timed_points(const ExperimentInfo& experiment, const MeasureOptions& options);
// Seconds that the rounds of one timed point may take.
double seconds_for_a_point(const ExperimentInfo& experiment, const MeasureOptions& options);

// The records of an experiment's variants before anything ran: names, skips, and what failed before.
std::vector<VariantRecord> blank_records(const ExperimentInfo& experiment, const MeasureOptions& options);
// The same at one point, where variants may be beyond what they are declared for.
std::vector<VariantRecord> records_at(const ExperimentInfo& experiment, const Point& at,
                                      std::vector<VariantRecord> records);
bool any_to_run(const std::vector<VariantRecord>& records);
// Set where `at` is beyond the variant's `up_to`: it is neither checked nor timed there.
std::optional<Skip> beyond_up_to(const VariantInfo& variant, const Point& at);

}  // namespace fathom::lab
