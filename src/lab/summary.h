// Computes the numbers of a record from samples.
#pragma once

#include <optional>
#include <vector>

#include "lab/experiment_info.h"
#include "lab/record.h"
#include "lab/verified_call.h"
#include "measure/interval.h"

namespace fathom::lab {

// Sets the time, its quantiles, and the rates at which the declared work was done: bytes and flops of cost(),
// and what the problem counts of a call as the metric "requests", "tokens" or "samples".
void set_time(VariantRecord& record, const std::vector<double>& samples_ns);
// Sets ratio and verdict; INCONCLUSIVE, without a ratio, where there are too few independent rounds for the
// confidence.
void set_ratio(VariantRecord& record, const std::vector<double>& log_ratios, double confidence);
// The same comparison in cycles of a GPU's clock. It differs from the one in time where the clock changed.
void set_ratio_in_cycles(VariantRecord& record, const std::vector<double>& log_ratios);
// A variant that was caught gets no time: a wrong answer is not a fast one.
void set_caught(VariantRecord& record, const Caught& caught);
// ln(baseline time / time), round by round.
std::vector<double> log_ratios(const std::vector<double>& base, const std::vector<double>& samples);

// The ratio and its interval from the handful of rounds that sessions, which last seconds, have. From six
// rounds on the interval is the range, which covers the median with 97 %; of fewer it would cover it with as
// little as 75 %, and is widened to Student's 95 % interval of the mean. One round has none.
std::optional<measure::Interval> ratio_of_few_rounds(const std::vector<double>& logs);

// Whether what was predicted held. A record without the ratio or share it is about gets the text alone.
void score_prediction(VariantRecord& record, const Prediction& prediction);
void score_predictions(const ExperimentInfo& experiment, PointRecord& point);  // of all variants

// For rounds that were not sampled by a TimedPoint: times and ratios of point.variants[v] from samples_ns[v];
// the first variant is the baseline. Variants that are not ok keep their outcome and get no time.
enum class RatioInterval {
  order_statistics,
  few_rounds,  // ratio_of_few_rounds()
};
void set_times_and_ratios(PointRecord& point, const std::vector<std::vector<double>>& samples_ns,
                          RatioInterval interval);

}  // namespace fathom::lab
