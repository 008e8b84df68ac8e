#include "cli/bench_serve_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "lab/quantity.h"
#include "report/page_frame.h"
#include "report/svg.h"

namespace fathom::cli {
namespace {

using lab::escape;
using load::Distribution;
using load::Summary;

constexpr double kWidth = 380, kHeight = 264, kLeft = 58, kRight = kWidth - 10, kTop = 40,
                 kBottom = kHeight - 40;

using Value = std::optional<double>;

std::string ms_text(Value seconds) {
  return seconds ? lab::digits_text(*seconds * 1e3) : std::string(lab::kAbsent);
}

struct Series {
  std::string name;
  std::function<Value(const LoadPoint&)> value;
  std::string_view line, mark;
  report::Drawing::LegendItem::Shape shape;
};

// Percentiles have the same marks in every chart; shapes tell them apart without colour.
std::vector<Series> percentiles_of(Distribution Summary::*samples) {
  using Shape   = report::Drawing::LegendItem::Shape;
  const auto at = [samples](double p) {
    return [samples, p](const LoadPoint& point) -> Value {
      const Value seconds = (point.summary.*samples).percentile(p);
      return seconds ? Value(*seconds * 1e3) : Value();
    };
  };
  return {{"p50", at(50), "whisker", "best", Shape::circle},
          {"p95", at(95), "roof", "baseline", Shape::diamond},
          {"p99", at(99), "roof-compute", "bad", Shape::cross}};
}

struct Chart {
  std::string id, title, y_name;
  bool log = false, diagonal = false;
  std::vector<Series> series;
};

std::string draw(const Chart& chart, const LoadReport& report) {
  std::vector<double> rates, values;
  for (const LoadPoint& point : report.points) {
    rates.push_back(point.setup.arrivals.request_rate);
    for (const Series& series : chart.series)
      if (const Value value = series.value(point)) values.push_back(*value);
  }
  if (values.empty()) return "";
  if (!chart.log) values.push_back(0);
  if (chart.diagonal) values.insert(values.end(), rates.begin(), rates.end());
  report::Drawing drawing(chart.id, kWidth, kHeight, chart.title,
                          fmt::format("{} against the offered load at {} rates.", chart.title, rates.size()));
  rates.push_back(0);
  report::Range y_range = report::range_of(values, chart.log);
  if (!chart.log) y_range.lo = 0;
  report::Range x_range = report::range_of(rates, false);
  x_range.lo            = 0;
  const report::Scale x{x_range, kLeft, kRight}, y{y_range, kBottom, kTop, chart.log};
  drawing.x_axis(x, kTop, kBottom, "offered, requests/s", 6);
  drawing.y_axis(y, kLeft, kRight, chart.y_name, 6);
  if (chart.diagonal) {
    const double most = std::min(x_range.hi, y_range.hi);
    drawing.line({x.at(0), y.at(0)}, {x.at(most), y.at(most)}, {"unity", "all that is offered"});
  }
  if (const double rate = report.saturation.request_rate; rate > 0 && x.contains(rate)) {
    drawing.line({x.at(rate), kTop}, {x.at(rate), kBottom},
                 {"unity", fmt::format("saturation, {} requests/s", lab::digits_text(rate))});
    drawing.text({x.at(rate), kTop - 5}, "saturation", {"quiet", report::Anchor::middle});
  }
  std::vector<report::Drawing::LegendItem> legend;
  for (const Series& series : chart.series) {
    std::vector<report::Place> places;
    for (const LoadPoint& point : report.points)
      if (const Value value = series.value(point))
        places.push_back({x.at(point.setup.arrivals.request_rate), y.at(*value)});
    drawing.polyline(places, {series.line, ""});
    legend.push_back({series.name, series.mark, series.shape});
  }
  using Shape = report::Drawing::LegendItem::Shape;
  for (const Series& series : chart.series)
    for (const LoadPoint& point : report.points) {
      const Value value = series.value(point);
      if (!value) continue;
      const double rate = point.setup.arrivals.request_rate;
      const report::Place at{x.at(rate), y.at(*value)};
      const report::Mark mark{series.mark,
                              fmt::format("{} at {} requests/s: {} {}", series.name, lab::digits_text(rate),
                                          lab::digits_text(*value), chart.y_name)};
      series.shape == Shape::circle    ? drawing.circle(at, 3.4, mark)
      : series.shape == Shape::diamond ? drawing.diamond(at, 4.2, mark)
                                       : drawing.cross(at, 3.6, mark);
    }
  if (legend.size() > 1) drawing.legend({kLeft, 13}, kRight, legend);
  return fmt::format("<figure><figcaption>{}</figcaption>\n{}</figure>\n", escape(chart.title),
                     drawing.embedded());
}

std::string charts(const LoadReport& report) {
  const auto comparable = std::count_if(report.points.begin(), report.points.end(), [](const LoadPoint& p) {
    return std::isfinite(p.setup.arrivals.request_rate) && !p.setup.arrivals.ramp;
  });
  if (comparable < 2 || comparable != static_cast<int64_t>(report.points.size())) return "";
  using Shape      = report::Drawing::LegendItem::Shape;
  const auto plain = [](std::string name, double Summary::*value) {
    return std::vector<Series>{{std::move(name),
                                [value](const LoadPoint& p) -> Value { return p.summary.*value; }, "whisker",
                                "best", Shape::circle}};
  };
  const Chart all[] = {
      {"ttft", "Time to the first token, ms, logarithmic", "TTFT, ms", true, false,
       percentiles_of(&Summary::ttft)},
      {"throughput", "Tokens generated each second", "output tokens/s", false, false,
       plain("output", &Summary::output_throughput)},
      {"tpot", "Time per output token after the first, ms", "TPOT, ms", false, false,
       percentiles_of(&Summary::tpot)},
      {"completed", "Requests answered each second; dashed: all that is offered", "requests/s", false, true,
       plain("answered", &Summary::request_throughput)},
  };
  std::string out;
  for (const Chart& chart : all) out += draw(chart, report);
  return "<section>\n<h2>Against load</h2>\n<div class=\"charts\" style=\"max-width: 820px\">\n" + out +
         "</div>\n</section>\n";
}

std::string number_cell(std::string_view text) {
  return fmt::format("<td class=\"num\">{}</td>", escape(text));
}

std::string points_table(const LoadReport& report) {
  const bool goals    = std::any_of(report.points.begin(), report.points.end(),
                                    [](const LoadPoint& p) { return p.summary.request_goodput.has_value(); });
  const bool relative = std::any_of(report.points.begin(), report.points.end(),
                                    [](const LoadPoint& p) { return p.of_saturation > 0; });
  std::string head, body;
  const auto column = [&](std::string_view name) { head += fmt::format("<th class=\"num\">{}</th>", name); };
  if (relative) column("of saturation");
  for (const char* name : {"offered, req/s", "answered", "failed", "answered, req/s"}) column(name);
  if (goals) column("within goals, req/s");
  for (const char* name :
       {"output tok/s", "TTFT p50", "p95", "p99", "TPOT p50", "p95", "p99", "ITL p99", "E2EL p50", "p99"})
    column(name);
  for (const LoadPoint& point : report.points) {
    const Summary& s     = point.summary;
    const auto& arrivals = point.setup.arrivals;
    body += "<tr>";
    if (relative)
      body += number_cell(point.of_saturation > 0 ? fmt::format("{:.2f}", point.of_saturation) : "–");
    body += number_cell(
        arrivals.ramp ? fmt::format("{:.4g} to {:.4g}", arrivals.ramp->start_rps, arrivals.ramp->end_rps)
        : std::isfinite(arrivals.request_rate) ? lab::digits_text(arrivals.request_rate)
                                               : "all at once");
    body += number_cell(lab::count_text(s.completed)) +
            number_cell(lab::count_text(s.failed + s.unfinished)) +
            number_cell(lab::digits_text(s.request_throughput));
    if (goals) body += number_cell(s.request_goodput ? lab::digits_text(*s.request_goodput) : "–");
    body += number_cell(lab::digits_text(s.output_throughput));
    for (const double p : {50., 95., 99.}) body += number_cell(ms_text(s.ttft.percentile(p)));
    for (const double p : {50., 95., 99.}) body += number_cell(ms_text(s.tpot.percentile(p)));
    body += number_cell(ms_text(s.itl.percentile(99))) + number_cell(ms_text(s.e2el.percentile(50))) +
            number_cell(ms_text(s.e2el.percentile(99))) + "</tr>\n";
  }
  return report::scroll_box(
      "All loads",
      fmt::format("<table class=\"loads\"><caption>Latencies in ms.</caption>\n<thead><tr>{}</tr></thead>\n"
                  "<tbody>\n{}</tbody></table>\n",
                  head, body));
}

std::string failures(const LoadReport& report) {
  std::string out;
  for (const LoadPoint& point : report.points)
    for (const auto& [error, count] : point.summary.errors)
      out += fmt::format(
          "<li>{} × {}{}</li>\n", count, escape(error),
          std::isfinite(point.setup.arrivals.request_rate)
              ? fmt::format(", at {} requests/s", lab::digits_text(point.setup.arrivals.request_rate))
              : "");
  return out.empty() ? "" : "<section>\n<h2>What failed</h2>\n<ul>\n" + out + "</ul>\n</section>\n";
}

// A table with shaded cells: the shade follows the ratio of a value to the row's lowest and highest.
std::string heat_map(const LoadReport& report) {
  if (report.lengths.empty()) return "";
  std::string head = "<th></th>", body;
  for (const LengthPoint& point : report.lengths)
    head += fmt::format("<th class=\"num\" style=\"padding-right: 14px\">{} in</th>",
                        lab::count_text(point.input_len));
  const struct {
    const char* name;
    Distribution Summary::*samples;
  } kMetrics[] = {{"TTFT", &Summary::ttft}, {"E2EL", &Summary::e2el}};
  for (const auto& [name, samples] : kMetrics) {
    std::vector<double> all;
    for (const LengthPoint& point : report.lengths)
      for (const double p : {50., 95., 99.})
        if (const Value value = (point.summary.*samples).percentile(p)) all.push_back(*value);
    const report::Scale shade{report::range_of(all, true, 0), 4, 46, true};
    for (const double p : {50., 95., 99.}) {
      body += fmt::format("<tr><th>{} p{:.0f}</th>", name, p);
      for (const LengthPoint& point : report.lengths) {
        const Value value = (point.summary.*samples).percentile(p);
        body += fmt::format(
            "<td class=\"num\"{}>{}</td>",
            value
                ? fmt::format(" style=\"background: color-mix(in srgb, var(--accent) {:.0f}%, var(--paper)); "
                              "print-color-adjust: exact; padding-left: 14px; padding-right: 14px\"",
                              shade.at(*value))
                : "",
            ms_text(value));
      }
      body += "</tr>\n";
    }
  }
  return fmt::format(
      "<section>\n<h2>Against context length</h2>\n<p>{} requests of each length, {}.</p>\n{}</section>\n",
      report.lengths.front().summary.completed + report.lengths.front().summary.failed,
      escape(report.lengths_load),
      report::scroll_box(
          "Latency over context lengths",
          fmt::format("<table><caption>Latency in ms over tokens of the prompt; the darker, the longer, "
                      "each metric by itself.</caption>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody>"
                      "</table>\n",
                      head, body)));
}

std::string fact_row(std::string_view name, std::string_view value) {
  return value.empty() ? "" : fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", name, escape(value));
}

}  // namespace

std::string bench_serve_page(const LoadReport& report) {
  const auto& setup = report.points.front().setup;
  std::string page  = report::page_head("Load test of " + setup.model_id);
  page += fmt::format("<header>\n<h1>Load test of {}</h1>\n<dl class=\"facts\">\n", escape(setup.model_id));
  page += fact_row("server", report.server) + fact_row("when", setup.date) +
          fact_row("workload", report.workload);
  page += fact_row("burstiness", fmt::format("{:.4g}", setup.arrivals.burstiness)) +
          fact_row("concurrency",
                   setup.max_concurrency > 0 ? fmt::format("at most {}", setup.max_concurrency) : "");
  page += "</dl>\n";
  if (report.saturation.request_rate > 0)
    page += fmt::format(
        "<p class=\"lead\">Saturation: {} requests/s, the highest rate at which requests were answered at 95 "
        "% or "
        "more of the rate at which they came.</p>\n",
        lab::digits_text(report.saturation.request_rate));
  page += "</header>\n<main>\n" + charts(report);
  page += "<section>\n<h2>All numbers</h2>\n" + points_table(report) + "</section>\n";
  page += heat_map(report) + failures(report);
  page +=
      "</main>\n<footer>TTFT: first chunk with content − send. TPOT: (E2EL − TTFT) / (output tokens − 1). "
      "ITL: "
      "every gap between two chunks. E2EL: last byte − send. Measured in the client, as vllm bench serve "
      "does."
      "</footer>\n";
  return page + report::page_foot();
}

}  // namespace fathom::cli
