#include "load/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/expect.h"
#include "measure/statistics.h"

namespace fathom::load {
namespace {

bool keeps(const RequestRecord& r, const LatencyGoals& goals) {
  return (!goals.ttft_s || r.ttft_s() <= *goals.ttft_s) &&
         (!goals.tpot_s || r.tpot_s().value_or(0) <= *goals.tpot_s) &&
         (!goals.e2el_s || r.e2el_s() <= *goals.e2el_s);
}

using Completed = std::vector<const RequestRecord*>;

double peak_output_throughput(const Completed& completed) {
  double origin = INFINITY;
  for (const RequestRecord* r : completed) origin = std::min(origin, r->sent_s);
  std::map<int64_t, double> tokens;  // by second
  for (const RequestRecord* r : completed)
    for (const double at : r->content_s)
      tokens[static_cast<int64_t>(at - origin)] +=
          static_cast<double>(r->output_tokens) / static_cast<double>(r->content_s.size());
  double most = 0;
  for (const auto& [second, count] : tokens) most = std::max(most, count);
  return most;
}

// Sweeps over all starts and ends. A request that ends when another one starts does not overlap it.
int64_t peak_concurrency(const Completed& completed) {
  std::vector<std::pair<double, int>> events;
  for (const RequestRecord* r : completed) {
    events.emplace_back(r->sent_s, +1);
    events.emplace_back(r->ended_s, -1);
  }
  std::sort(events.begin(), events.end());
  int64_t now = 0, most = 0;
  for (const auto& [at, change] : events) most = std::max(most, now += change);
  return most;
}

}  // namespace

double RequestRecord::ttft_s() const { return content_s.empty() ? 0 : content_s.front() - sent_s; }

std::optional<double> RequestRecord::tpot_s() const {
  if (output_tokens <= 1) return {};
  return (e2el_s() - ttft_s()) / static_cast<double>(output_tokens - 1);
}

Result<LatencyGoals> parse_goals(std::span<const std::string> texts) {
  LatencyGoals goals;
  for (const std::string& text : texts) {
    const size_t colon = text.find(':');
    double ms          = -1;
    if (colon != std::string::npos) {
      const auto [end, error] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), ms);
      if (error != std::errc() || end != text.data() + text.size()) ms = -1;
    }
    const std::string_view name = std::string_view(text).substr(0, colon);
    std::optional<double>* goal = name == "ttft"   ? &goals.ttft_s
                                  : name == "tpot" ? &goals.tpot_s
                                  : name == "e2el" ? &goals.e2el_s
                                                   : nullptr;
    if (!goal || !(ms >= 0) || !std::isfinite(ms))
      return Error{
          fmt::format("--goodput: '{}' is no goal; write NAME:MILLISECONDS with ttft, tpot or e2el", text)};
    *goal = ms * 1e-3;
  }
  return goals;
}

Distribution::Distribution(std::vector<double> samples) : sorted_(std::move(samples)) {
  std::sort(sorted_.begin(), sorted_.end());
}

std::optional<double> Distribution::mean() const {
  if (sorted_.empty()) return {};
  return std::accumulate(sorted_.begin(), sorted_.end(), 0.0) / static_cast<double>(sorted_.size());
}

std::optional<double> Distribution::deviation() const {
  if (sorted_.empty()) return {};
  const double centre = *mean();
  double squares      = 0;
  for (const double sample : sorted_) squares += (sample - centre) * (sample - centre);
  return std::sqrt(squares / static_cast<double>(sorted_.size()));
}

std::optional<double> Distribution::percentile(double p) const {
  FATHOM_EXPECT(p >= 0 && p <= 100, "a percentile lies in 0 to 100");
  if (sorted_.empty()) return {};
  return measure::quantile_of_sorted(sorted_, p / 100);
}

Summary summarize(std::span<const RequestRecord> requests, double duration_s, const LatencyGoals& goals) {
  Summary sum{.duration_s = duration_s};
  Completed completed;
  std::vector<double> ttft, tpot, itl, e2el, queue;
  int64_t good                = 0;
  const RequestRecord* failed = nullptr;
  for (const RequestRecord& r : requests) {
    if (r.state == RequestRecord::State::failed) {
      ++sum.failed;
      ++sum.errors[r.error];
      if (!failed || r.ended_s < failed->ended_s) failed = &r;
    } else if (r.state != RequestRecord::State::completed) {
      ++sum.unfinished;
    } else {
      completed.push_back(&r);
      sum.input_tokens += r.input_tokens;
      sum.output_tokens += r.output_tokens;
      ttft.push_back(r.ttft_s());
      if (const auto each = r.tpot_s()) tpot.push_back(*each);
      for (size_t i = 1; i < r.content_s.size(); ++i) itl.push_back(r.content_s[i] - r.content_s[i - 1]);
      e2el.push_back(r.e2el_s());
      queue.push_back(r.sent_s - r.scheduled_s);
      good += keeps(r, goals);
    }
  }
  if (failed) sum.first_error = failed->error;
  sum.completed         = static_cast<int64_t>(completed.size());
  const auto per_second = [&](int64_t count) {
    return duration_s > 0 ? static_cast<double>(count) / duration_s : 0;
  };
  sum.request_throughput     = per_second(sum.completed);
  sum.output_throughput      = per_second(sum.output_tokens);
  sum.total_token_throughput = per_second(sum.input_tokens + sum.output_tokens);
  if (goals.any()) sum.request_goodput = per_second(good);
  sum.peak_output_throughput = peak_output_throughput(completed);
  sum.peak_concurrency       = peak_concurrency(completed);
  sum.ttft                   = Distribution(std::move(ttft));
  sum.tpot                   = Distribution(std::move(tpot));
  sum.itl                    = Distribution(std::move(itl));
  sum.e2el                   = Distribution(std::move(e2el));
  sum.client_queue           = Distribution(std::move(queue));
  return sum;
}

}  // namespace fathom::load
