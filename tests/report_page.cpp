// Writes the pages of the invented run into a folder, for tests/report_browser_test.py to open.
#include <fmt/format.h>

#include <string>

#include "lab/report.h"
#include "lab/report_fixture.h"

int main(int argc, char** argv) {
  using namespace fathom::lab;
  if (argc != 2) {
    fmt::print(stderr, "usage: report_page FOLDER\n");
    return 5;
  }
  const std::string folder = argv[1];
  const RunRecord run      = fixture_run();
  const Roofs roofs        = fixture_roofs();
  write_file_whole(folder + "/report.html", report_html(run, roofs, {{"ch08/branch_predication", "other"}}));
  write_file_whole(folder + "/roofline.svg", roofline_svg(roofs, roofline_points(run, roofs), SvgFor::file));
  RunRecord empty;
  empty.started = "2026-05-01T08:00:00Z";
  empty.machine = "fixture-2c";
  write_file_whole(folder + "/empty.html", report_html(empty, {}));
  RunRecord older = run;
  older.label     = "";
  older.started   = "2026-04-30T22:15:00Z";
  write_file_whole(folder + "/index.html",
                   index_html({summary_of(empty, "c/report.html"), summary_of(run, "report.html"),
                               summary_of(older, "b/report.html")}));
  return 0;
}
