#include "report/report.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "report/report_fixture.h"

namespace fathom::report {

using namespace lab;

namespace {

// Every element that is opened is closed, in order; void elements and <... /> apart. Text holds no bare '<'
// or '>'.
testing::AssertionResult well_nested(const std::string& html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const size_t end       = html.find('>', at);
    const bool closes      = html[at + 1] == '/';
    const size_t from      = at + (closes ? 2 : 1);
    const std::string name = html.substr(from, html.find_first_of(" />", from) - from);
    if (end == std::string::npos) return testing::AssertionFailure() << "<" << name << " has no end";
    if (name == "!DOCTYPE" || name == "meta" || name == "link" || name == "br" || html[end - 1] == '/')
      continue;
    if (!closes) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return testing::AssertionFailure()
             << "</" << name << "> closes " << (open.empty() ? "nothing" : open.back());
    } else {
      open.pop_back();
    }
  }
  if (!open.empty()) return testing::AssertionFailure() << open.back() << " is never closed";
  return testing::AssertionSuccess();
}

testing::AssertionResult is_page(const std::string& html) {
  if (const auto nested = well_nested(html); !nested) return nested;
  for (const char* forbidden : {"<script", "http://", "https://", ">nan", "\"nan", " nan", ">inf<", "url("})
    if (html.find(forbidden) != std::string::npos)
      return testing::AssertionFailure() << "holds " << forbidden;
  return testing::AssertionSuccess();
}

bool holds(const std::string& html, const std::string& text) { return html.find(text) != std::string::npos; }

TEST(Report, TellsOfEveryOutcome) {
  const std::string html = report_html(fixture_run(), fixture_roofs());
  EXPECT_TRUE(is_page(html));
  for (const char* text : {"▲ FASTER",
                           "▼ SLOWER",
                           "= SAME",
                           "? INCONCLUSIVE",
                           "✕ INVALID",
                           ">advisory<",
                           "Geometric mean",
                           "ch07/transpose_gpu</span> (skipped: needs_cuda)",
                           "868 µs is below the floor of 1.12 ms",
                           "wrong output",
                           "crashed",
                           "ran out of time",
                           "Install libdnnl.so.3",
                           "avx512f",
                           "✓ held",
                           "✗ failed",
                           "stopped at the cap on time",
                           "0123456789abcdef",
                           "machine.caches.L2",
                           "no raw samples in this record"})
    EXPECT_TRUE(holds(html, text)) << text;
}

TEST(Report, EscapesWhatTheRecordSays) {
  RunRecord run          = fixture_run();
  const std::string evil = "<img src=x onerror=\"alert('1')\">&";
  run.label = run.machine = evil;
  run.manifest            = R"({"<img>": "<img>"})";
  for (ExperimentRecord& experiment : run.experiments) {
    experiment.id = experiment.question = experiment.detail = evil;
    experiment.catalog                                      = {evil};
    for (PointRecord& point : experiment.points) {
      point.at    = Point({{evil, evil}});
      point.limit = point.cache = point.stopped = evil;
      point.noise                               = {{evil, 1}};
      for (VariantRecord& v : point.variants) {
        v.id = v.kind = v.idea = v.detail = evil;
        v.caught_by                       = evil;
        v.techniques                      = {evil};
        v.metrics                         = {{evil, {1, "higher"}}};
        if (v.skip) v.skip = Skip{evil, evil};
        if (v.prediction) v.prediction->text = evil;
      }
    }
  }
  const std::string html =
      report_html(run, {.memory = {{evil, 1e9}}, .compute = {{evil, 1e9}}, .measured = evil});
  EXPECT_TRUE(is_page(html));
  EXPECT_FALSE(holds(html, "<img"));
  const std::string index = index_html({summary_of(run, "\"><img>")});
  EXPECT_TRUE(is_page(index));
  EXPECT_FALSE(holds(index, "<img"));
}

TEST(Report, StandsForAnEmptyRunAndARunOfSkips) {
  EXPECT_TRUE(is_page(report_html({}, {})));
  EXPECT_TRUE(holds(report_html({}, {}), "no experiment"));
  RunRecord run;
  for (const char* id : {"ch07/a_gpu", "ch07/b_gpu"}) {
    ExperimentRecord experiment;
    experiment.id     = id;
    experiment.status = Outcome::skipped;
    experiment.skip   = Skip{"needs_cuda", ""};
    run.experiments.push_back(experiment);
  }
  const std::string html = report_html(run, fixture_roofs());
  EXPECT_TRUE(is_page(html));
  EXPECT_TRUE(holds(html, "No experiment has a valid ratio"));
  EXPECT_TRUE(holds(html, "<b>2</b> <a href=\"#skipped\">skipped</a>"));
  EXPECT_FALSE(holds(html, "<svg")) << "nothing was measured, so nothing is drawn";
}

TEST(Report, NeverPrintsWhatIsNotANumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, inf, 0.0, -1.0}) {
    RunRecord run = fixture_run();
    for (ExperimentRecord& experiment : run.experiments) {
      experiment.seconds = bad;
      for (PointRecord& point : experiment.points) {
        point.floor_ns = bad;
        point.aa       = AaControl{bad, bad, false};
        point.noise    = {{"steal_ms", bad}};
        for (VariantRecord& v : point.variants) {
          v.time_ns        = Spread{bad, bad, bad, bad, bad, bad, bad, bad};
          v.ratio          = Ratio{bad, bad, bad};
          v.share_of_limit = bad;
          v.checked        = Checked{1, 1, bad, bad};
          v.metrics        = {{"m", {bad, "lower"}}};
          v.flops          = bad;
        }
      }
    }
    EXPECT_TRUE(is_page(report_html(run, {.memory = {{"m", bad}}, .compute = {{"c", bad}}, .measured = ""})))
        << bad;
  }
}

TEST(Report, MarksAsStaleOnlyWhatChanged) {
  const RunRecord run = fixture_run();
  const auto& id      = run.experiments[0].id;
  const auto stale    = [](const std::string& html) { return holds(html, ">stale<"); };
  EXPECT_FALSE(stale(report_html(run, {})));
  EXPECT_FALSE(stale(report_html(run, {}, {{id, run.experiments[0].source_hash}, {"ch99/other", "x"}})));
  EXPECT_TRUE(stale(report_html(run, {}, {{id, "changed"}})));
}

TEST(Report, ShowsTheExperimentsOfAGroupSideBySide) {
  RunRecord run = fixture_run();
  EXPECT_FALSE(holds(report_html(run, {}), "id=\"groups\""));
  run.experiments[0].group = "<same>";
  EXPECT_FALSE(holds(report_html(run, {}), "id=\"groups\"")) << "one experiment is no group";
  for (ExperimentRecord& experiment : run.experiments) experiment.group = "<same>";
  const std::string html = report_html(run, fixture_roofs());
  EXPECT_TRUE(is_page(html));
  const size_t begin        = html.find("id=\"groups\"");
  const size_t end          = html.find("<h2", begin);
  const std::string section = html.substr(begin, end - begin);
  EXPECT_TRUE(holds(section, "The same work: &lt;same&gt;."));
  for (size_t i = 0; i < run.experiments.size(); ++i)
    EXPECT_TRUE(holds(section, "href=\"#e" + std::to_string(i) + "\">" + run.experiments[i].id + "<"))
        << run.experiments[i].id;
}

TEST(Report, ShowsAManifestThatIsNoJsonAsItIs) {
  RunRecord run = fixture_run();
  run.manifest  = "{torn <in> half";
  EXPECT_TRUE(holds(report_html(run, {}), "{torn &lt;in&gt; half"));
}

TEST(Index, ListsRunsNewestFirstWithTheirBestSpeedUps) {
  RunRecord older = fixture_run(), newer = fixture_run();
  older.started            = "2026-01-01T00:00:00Z";
  older.label              = "older";
  newer.label              = "newer";
  const RunSummary summary = summary_of(newer, "b/report.html");
  ASSERT_EQ(summary.best.size(), 3u);
  EXPECT_GT(summary.best[0].ratio.median, summary.best[1].ratio.median);
  for (const auto& best : summary.best) {
    EXPECT_FALSE(best.id.starts_with("ch03/huge_pages")) << "advisory";
    EXPECT_NE(best.variant, "skips_half") << "invalid";
  }
  const std::string html = index_html({summary_of(older, "a/report.html"), summary});
  EXPECT_TRUE(is_page(html));
  EXPECT_LT(html.find("b/report.html"), html.find("a/report.html"));
  EXPECT_TRUE(holds(html, "href=\"b/report.html#skipped\""));
  EXPECT_TRUE(is_page(index_html({})));
}

}  // namespace
}  // namespace fathom::report
