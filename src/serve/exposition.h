// One export in Prometheus's text format: families of series that share some labels.
#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/histogram.h"

namespace fathom::serve {

using Labels = std::vector<prometheus::ClientMetric::Label>;

// A metric's own name, and vLLM's where it has one. Names of counters lack "_total".
struct MetricNames {
  std::string_view own, vllm = {};
};

// One series: its labels beside the common ones, and its value.
struct Series {
  Labels labels;
  double value = 0;
};

// The series of a family that differ in one label; Number is int64_t or double.
template <class Number>
std::vector<Series> series_by(const char* label, std::span<const std::pair<std::string, Number>> values) {
  std::vector<Series> series;
  for (const auto& [of, value] : values) series.push_back({{{label, of}}, static_cast<double>(value)});
  return series;
}

class Exposition {
 public:
  explicit Exposition(Labels common) : common_(std::move(common)) {}

  void gauge(const MetricNames& names, std::string_view help, double value) {
    gauges(names, help, {{{}, value}});
  }
  void gauges(const MetricNames& names, std::string_view help, const std::vector<Series>& series);
  template <class Number>
  void gauges(const MetricNames& names, std::string_view help, const char* label,
              std::span<const std::pair<std::string, Number>> values) {
    gauges(names, help, series_by(label, values));
  }
  void info(const MetricNames& names, std::string_view help, Labels labels) {
    gauges(names, help, {{std::move(labels), 1}});
  }

  template <class Number>
  void counter(const MetricNames& names, std::string_view help, Number value) {
    counters(names, help, {{{}, static_cast<double>(value)}});
  }
  void counters(const MetricNames& names, std::string_view help, const std::vector<Series>& series);
  template <class Number>
  void counters(const MetricNames& names, std::string_view help, const char* label,
                std::span<const std::pair<std::string, Number>> values) {
    counters(names, help, series_by(label, values));
  }
  // A counter that another exporter calls by a name without "_total".
  void counters_named(std::string_view name, std::string_view help, const std::vector<Series>& series);

  void histogram(const MetricNames& names, std::string_view help, const Histogram& histogram);
  void histograms(const MetricNames& names, std::string_view help,
                  const std::vector<std::pair<Labels, const Histogram*>>& by_labels);

  std::string text() const;

 private:
  prometheus::ClientMetric metric(const Labels& more) const;
  void values(const MetricNames& names, std::string_view suffix, std::string_view help,
              prometheus::MetricType type, const std::vector<Series>& series);
  void add(const MetricNames& names, std::string_view suffix, std::string_view help,
           prometheus::MetricType type, std::vector<prometheus::ClientMetric> metrics);

  Labels common_;
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace fathom::serve
