// Writes the pages of a made-up run into a folder; tests/report_browser_test.py opens them.
#include <fmt/format.h>

#include <array>
#include <string>

#include "core/atomic_file.h"
#include "report/metrics_page.h"
#include "report/report.h"
#include "report/report_fixture.h"

int main(int argc, char** argv) {
  using namespace fathom::lab;
  using namespace fathom::report;
  if (argc != 2) {
    fmt::print(stderr, "usage: report_page FOLDER\n");
    return 5;
  }
  const std::string folder    = argv[1];
  const RunRecord run         = fixture_run();
  const ReportContext context = fixture_context();
  const auto write            = [&](const char* name, const std::string& page) {
    fathom::write_file_atomically(folder + "/" + name, page);
  };
  write("report.html", report_html(run, context));
  write("large.html", report_html(large_fixture_run(), context));
  write("roofline.svg", roofline_svg(context.roofs, roofline_points(run, context.roofs), SvgFor::file));
  RunRecord empty;
  empty.started = "2026-05-01T08:00:00Z";
  empty.machine = "fixture-2c";
  write("empty.html", report_html(empty));
  RunRecord older = run;
  older.label     = "";
  older.started   = "2026-04-30T22:15:00Z";
  write("index.html", index_html({summary_of(empty, "c/report.html"), summary_of(run, "report.html"),
                                  summary_of(older, "b/report.html")}));

  // Names and numbers as long as they come, so that a phone's width is tried.
  const MetricBars ttft{.experiment = "ch15/monolithic_engine",
                        .at         = "requests=40",
                        .metric     = "time_to_first_token_p50_ns",
                        .bars       = {{"one_request_at_a_time", 812.3e6, true},
                                       {"continuous_batching_with_chunked_prefill", 101.2e6},
                                       {"prefix_cache", 4.2e9}}};
  const MetricBars rate{.experiment       = "ch15/monolithic_engine",
                        .at               = "requests=40",
                        .metric           = "output_tokens_per_s",
                        .higher_is_better = true,
                        .bars             = {{"one_request_at_a_time", 123.4, true}, {"prefix_cache", 4321}}};
  write("metrics.html",
        metrics_page("Metrics of artifacts/2026-05-01T08-00-00Z_ch15", std::array{ttft, rate}));
  return 0;
}
