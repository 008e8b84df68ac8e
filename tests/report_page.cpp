// Writes the pages of a made-up run into a folder; tests/report_browser_test.py opens them.
#include <fmt/format.h>

#include <string>

#include "core/atomic_file.h"
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
  return 0;
}
