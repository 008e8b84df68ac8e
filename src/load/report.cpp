#include "load/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

namespace fathom::load {
namespace {

using nlohmann::json;

constexpr size_t kMaxErrors = 10;  // distinct errors in the text

struct Metric {
  const char *key, *name, *header;
  const Distribution* samples;
};

std::vector<Metric> metrics_of(const Config& setup, const Summary& s, const ReportedMetrics& wanted) {
  const Metric all[] = {{"ttft", "TTFT", "Time to First Token", &s.ttft},
                        {"tpot", "TPOT", "Time per Output Token (excl. 1st token)", &s.tpot},
                        {"itl", "ITL", "Inter-token Latency", &s.itl},
                        {"e2el", "E2EL", "End-to-end Latency", &s.e2el}};
  std::vector<Metric> chosen;
  for (const Metric& metric : all)
    if (std::find(wanted.names.begin(), wanted.names.end(), metric.key) != wanted.names.end())
      chosen.push_back(metric);
  if (setup.max_concurrency > 0)
    chosen.push_back({"client_queue_time", "Client Queue Time", "Client-side Queueing", &s.client_queue});
  return chosen;
}

std::string row(std::string_view label, std::string_view value) {
  return fmt::format("{:<40} {:<10}\n", label, value);
}
std::string row(std::string_view label, int64_t value) { return row(label, std::to_string(value)); }
std::string row(std::string_view label, double value) { return row(label, fmt::format("{:.2f}", value)); }
std::string ms_row(std::string_view label, std::optional<double> seconds) {
  return seconds ? row(label, *seconds * 1e3) : row(label, std::string_view("-"));
}

json ms(std::optional<double> seconds) { return seconds ? json(*seconds * 1e3) : json(); }

std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t comma = list.find(',');
    parts.push_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

std::string percentile_name(double p) { return fmt::format("P{:.15g}", p); }

Result<ReportedMetrics> parse_metrics(const std::string& names, const std::string& percentiles) {
  ReportedMetrics metrics{{}, {}};
  for (const std::string_view name : parts_of(names)) {
    if (name != "ttft" && name != "tpot" && name != "itl" && name != "e2el")
      return Error{
          fmt::format("--percentile-metrics: '{}' is no metric; choose among ttft,tpot,itl,e2el", name)};
    metrics.names.emplace_back(name);
  }
  for (const std::string_view text : parts_of(percentiles)) {
    double p                = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), p);
    if (error != std::errc() || end != text.data() + text.size() || !(p >= 0 && p <= 100))
      return Error{fmt::format("--metric-percentiles: '{}' is no percentile; write e.g. 50,95,99", text)};
    metrics.percentiles.push_back(p);
  }
  return metrics;
}

std::string report_text(const Config& setup, const Summary& s, const ReportedMetrics& metrics) {
  std::string text = fmt::format("{:=^50}\n", " Serving Benchmark Result ");
  text += row("Successful requests:", s.completed);
  text += row("Failed requests:", s.failed);
  if (s.unfinished > 0) text += row("Unfinished requests:", s.unfinished);
  if (setup.max_concurrency > 0) text += row("Maximum request concurrency:", setup.max_concurrency);
  if (std::isfinite(setup.arrivals.request_rate) && !setup.arrivals.ramp)
    text += row("Request rate configured (RPS):", setup.arrivals.request_rate);
  text += row("Benchmark duration (s):", s.duration_s);
  text += row("Total input tokens:", s.input_tokens);
  text += row("Total generated tokens:", s.output_tokens);
  text += row("Request throughput (req/s):", s.request_throughput);
  if (s.request_goodput) text += row("Request goodput (req/s):", *s.request_goodput);
  text += row("Output token throughput (tok/s):", s.output_throughput);
  text += row("Peak output token throughput (tok/s):", s.peak_output_throughput);
  text += row("Peak concurrent requests:", static_cast<double>(s.peak_concurrency));
  text += row("Total token throughput (tok/s):", s.total_token_throughput);
  for (const Metric& metric : metrics_of(setup, s, metrics)) {
    text += fmt::format("{:-^50}\n", metric.header);
    text += ms_row(fmt::format("Mean {} (ms):", metric.name), metric.samples->mean());
    text += ms_row(fmt::format("Median {} (ms):", metric.name), metric.samples->median());
    for (const double p : metrics.percentiles)
      text +=
          ms_row(fmt::format("{} {} (ms):", percentile_name(p), metric.name), metric.samples->percentile(p));
  }
  text += std::string(50, '=') + '\n';
  if (s.failed == 0) return text;
  text += fmt::format("The first failure: {}\n", s.first_error);
  if (s.errors.size() == 1) return text;
  std::vector<std::pair<int64_t, std::string>> often;
  for (const auto& [error, count] : s.errors) often.emplace_back(-count, error);
  std::sort(often.begin(), often.end());
  for (size_t i = 0; i < std::min(often.size(), kMaxErrors); ++i)
    text += fmt::format("{:>7} x {}\n", -often[i].first, often[i].second);
  if (often.size() > kMaxErrors)
    text += fmt::format("        and {} other failures\n", often.size() - kMaxErrors);
  return text;
}

json report_json(const Config& setup, const Summary& s, const ReportedMetrics& metrics) {
  const ArrivalProcess& arrivals = setup.arrivals;
  const auto finite = [](double value) { return std::isfinite(value) ? json(value) : json("inf"); };
  json out{{"date", setup.date},
           {"endpoint_type", setup.backend},
           {"backend", setup.backend},
           {"label", setup.label.empty() ? json() : json(setup.label)},
           {"model_id", setup.model_id},
           {"tokenizer_id", setup.tokenizer_id.empty() ? json() : json(setup.tokenizer_id)},
           {"endpoint", setup.endpoint},
           {"num_prompts", setup.num_prompts},
           {"seed", arrivals.seed},
           {"request_rate", finite(arrivals.request_rate)},
           {"burstiness", finite(arrivals.burstiness)},
           {"max_concurrency", setup.max_concurrency > 0 ? json(setup.max_concurrency) : json()},
           {"duration", s.duration_s},
           {"completed", s.completed},
           {"failed", s.failed},
           {"unfinished", s.unfinished},
           {"total_input_tokens", s.input_tokens},
           {"total_output_tokens", s.output_tokens},
           {"request_throughput", s.request_throughput},
           {"request_goodput", s.request_goodput ? json(*s.request_goodput) : json()},
           {"output_throughput", s.output_throughput},
           {"total_token_throughput", s.total_token_throughput},
           {"max_output_tokens_per_s", s.peak_output_throughput},
           {"max_concurrent_requests", s.peak_concurrency}};
  if (arrivals.ramp) {
    out["ramp_up_strategy"]  = arrivals.ramp->shape == Ramp::Shape::linear ? "linear" : "exponential";
    out["ramp_up_start_rps"] = arrivals.ramp->start_rps;
    out["ramp_up_end_rps"]   = arrivals.ramp->end_rps;
  }
  for (const Metric& metric : metrics_of(setup, s, metrics)) {
    const auto key     = [&](std::string_view name) { return fmt::format("{}_{}_ms", name, metric.key); };
    out[key("mean")]   = ms(metric.samples->mean());
    out[key("median")] = ms(metric.samples->median());
    out[key("std")]    = ms(metric.samples->deviation());
    for (const double p : metrics.percentiles)
      out[key(fmt::format("p{:.15g}", p))] = ms(metric.samples->percentile(p));
  }
  if (s.failed > 0) out["failures"] = s.errors;
  return out;
}

void add_details(json& result, const RunResult& run) {
  json inputs = json::array(), outputs = inputs, ttfts = inputs, itls = inputs, latencies = inputs,
       starts = inputs, queues = inputs, errors = inputs;
  for (const RequestRecord& r : run.requests) {
    const bool whole = r.state == RequestRecord::State::completed;
    inputs.push_back(r.input_tokens);
    outputs.push_back(whole ? r.output_tokens : 0);
    ttfts.push_back(r.ttft_s());
    json gaps = json::array();
    for (size_t i = 1; i < r.content_s.size(); ++i) gaps.push_back(r.content_s[i] - r.content_s[i - 1]);
    itls.push_back(std::move(gaps));
    latencies.push_back(whole ? r.e2el_s() : 0);
    starts.push_back(r.sent_s);
    queues.push_back(r.state == RequestRecord::State::unsent ? 0 : r.sent_s - r.scheduled_s);
    errors.push_back(whole || !r.error.empty() ? r.error : "unfinished");
  }
  result["input_lens"]  = std::move(inputs);
  result["output_lens"] = std::move(outputs);
  result["ttfts"]       = std::move(ttfts);
  result["itls"]        = std::move(itls);
  result["latencies"]   = std::move(latencies);
  result["start_times"] = std::move(starts);
  result["queue_times"] = std::move(queues);
  result["errors"]      = std::move(errors);
}

}  // namespace fathom::load
