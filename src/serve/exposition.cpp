#include "serve/exposition.h"

#include <fmt/format.h>
#include <prometheus/text_serializer.h>

namespace fathom::serve {

using prometheus::ClientMetric;
using prometheus::MetricType;

void Exposition::gauges(const MetricNames& names, std::string_view help, const std::vector<Series>& series) {
  values(names, "", help, MetricType::Gauge, series);
}

void Exposition::counters(const MetricNames& names, std::string_view help,
                          const std::vector<Series>& series) {
  values(names, "_total", help, MetricType::Counter, series);
}

void Exposition::counters_named(std::string_view name, std::string_view help,
                                const std::vector<Series>& series) {
  values({name}, "", help, MetricType::Counter, series);
}

void Exposition::histogram(const MetricNames& names, std::string_view help, const Histogram& histogram) {
  histograms(names, help, {{{}, &histogram}});
}

void Exposition::histograms(const MetricNames& names, std::string_view help,
                            const std::vector<std::pair<Labels, const Histogram*>>& by_labels) {
  std::vector<ClientMetric> metrics;
  for (const auto& [labels, histogram] : by_labels) {
    metrics.push_back(metric(labels));
    metrics.back().histogram = histogram->exported();
  }
  add(names, "", help, MetricType::Histogram, std::move(metrics));
}

std::string Exposition::text() const { return prometheus::TextSerializer().Serialize(families_); }

ClientMetric Exposition::metric(const Labels& more) const {
  ClientMetric metric;
  metric.label = common_;
  metric.label.insert(metric.label.end(), more.begin(), more.end());
  return metric;
}

void Exposition::values(const MetricNames& names, std::string_view suffix, std::string_view help,
                        MetricType type, const std::vector<Series>& series) {
  std::vector<ClientMetric> metrics;
  for (const Series& one : series) {
    metrics.push_back(metric(one.labels));
    metrics.back().counter.value = metrics.back().gauge.value = one.value;  // `type` selects one of the two
  }
  add(names, suffix, help, type, std::move(metrics));
}

void Exposition::add(const MetricNames& names, std::string_view suffix, std::string_view help,
                     MetricType type, std::vector<ClientMetric> metrics) {
  if (!names.vllm.empty())
    families_.push_back({fmt::format("{}{}", names.vllm, suffix), std::string(help), type, metrics});
  families_.push_back({fmt::format("{}{}", names.own, suffix), std::string(help), type, std::move(metrics)});
}

}  // namespace fathom::serve
