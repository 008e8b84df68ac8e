// Rules that every registered experiment must satisfy.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "diagnose/rules.h"
#include "lab/catalog.h"
#include "lab/coverage.h"
#include "lab/python_process.h"
#include "lab/record.h"
#include "lab/registry.h"
#include "lab/source_hash.h"
#include "lab/target.h"

namespace fathom::lab {
namespace {

TEST(Registry, TechniquesStayWithinTheirChapter) {
  const auto chapters = parse_chapters(chapters_toml());
  ASSERT_TRUE(chapters.has_value()) << chapters.error().message;
  for (const std::string& breach : scope_breaches(*chapters, experiments())) ADD_FAILURE() << breach;
}

TEST(Registry, EveryScriptOfAPythonVariantIsCompiledIn) {
  int scripts = 0;
  for (const ExperimentInfo& experiment : experiments())
    for (const VariantInfo& variant : experiment.variants)
      if (variant.python) {
        ++scripts;
        EXPECT_FALSE(python_source(variant.python->script()).empty())
            << experiment.id << "/" << variant.id << ": " << variant.python->script();
      }
  EXPECT_GT(scripts, 0);
}

// What a diagnosis names as a cure is a technique of a chapter, and the variant that shows it exists.
TEST(Registry, EveryCureOfADiagnosisIsShown) {
  const auto chapters = parse_chapters(chapters_toml());
  ASSERT_TRUE(chapters.has_value()) << chapters.error().message;
  std::set<std::string_view> techniques;
  for (const Chapter& chapter : *chapters)
    techniques.insert(chapter.techniques.begin(), chapter.techniques.end());
  for (const diagnose::Rule& rule : diagnose::rules()) {
    for (const std::string_view cure : rule.cures)
      EXPECT_TRUE(techniques.contains(cure))
          << rule.cause << ": " << cure << " is no technique of chapters.toml";
    for (const diagnose::Shown& shown : rule.shown) {
      const ExperimentInfo* experiment = find_experiment(shown.experiment);
      ASSERT_NE(experiment, nullptr) << rule.cause << ": " << shown.experiment;
      const auto variant = std::find_if(experiment->variants.begin(), experiment->variants.end(),
                                        [&](const VariantInfo& v) { return v.id == shown.variant; });
      EXPECT_NE(variant, experiment->variants.end())
          << rule.cause << ": " << shown.experiment << "/" << shown.variant;
    }
  }
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(Registry, EveryLabelIsATargetOrATypedSkip) {
  const auto labels = parse_labels(labels_toml());
  ASSERT_TRUE(labels.has_value()) << labels.error().message;
  // 63 names of the catalog, three of the field, the tour, four acts, three demonstrations
  EXPECT_GE(labels->size(), 75u);
  for (const TargetLabel& label : *labels) {
    const auto targets = resolve_targets({label.name}, experiments(), *labels);
    ASSERT_TRUE(targets.has_value()) << label.name << ": " << targets.error().message;
    const size_t wanted = label.target.empty() ? 1 : words_of(label.target).size();
    if (label.name != "demo:matmul") {  // variants of one experiment
      EXPECT_EQ(targets->selections.size() + targets->planned.size(), wanted) << label.name;
    }
    for (const Planned& planned : targets->planned) EXPECT_FALSE(planned.skip.reason.empty()) << label.name;
    if (label.target.empty()) {
      EXPECT_EQ(targets->planned.size(), 1u) << label.name << " is planned, and there is an experiment";
    }
  }
}

// Experiments and what is planned, as the label lists them; each act has all of its chapters.
TEST(Registry, AnActKeepsItsOrderAndHasItsChapters) {
  const auto labels = parse_labels(labels_toml());
  ASSERT_TRUE(labels.has_value()) << labels.error().message;
  std::set<std::string> in_acts;
  for (int act = 1; act <= 4; ++act) {
    const std::string name = fmt::format("act{}", act);
    const auto label =
        std::find_if(labels->begin(), labels->end(), [&](const TargetLabel& l) { return l.name == name; });
    ASSERT_NE(label, labels->end()) << name;
    const auto targets = resolve_targets({name}, experiments(), *labels);
    ASSERT_TRUE(targets.has_value()) << targets.error().message;
    std::vector<std::string> listed, run;
    std::set<std::string> chapters;
    for (std::string target : words_of(label->target)) {
      std::replace(target.begin(), target.end(), ':', '/');
      chapters.insert(target.substr(0, target.find('/')));
      const bool planned = std::any_of(targets->planned.begin(), targets->planned.end(),
                                       [&](const Planned& p) { return p.label == target; });
      if (!planned) listed.push_back(target);
    }
    for (const Selection& selection : targets->selections) {
      run.push_back(selection.experiment);
      EXPECT_TRUE(in_acts.insert(selection.experiment).second) << selection.experiment << " is in two acts";
    }
    EXPECT_EQ(listed, run);
    for (int chapter = 5 * act - 4; chapter <= 5 * act; ++chapter)
      EXPECT_TRUE(chapters.count(fmt::format("ch{:02}", chapter))) << name << " lacks chapter " << chapter;
  }
}

TEST(Registry, TheTourVisitsEveryChapter) {
  const auto labels = parse_labels(labels_toml());
  ASSERT_TRUE(labels.has_value()) << labels.error().message;
  const auto tour = resolve_targets({"tour"}, experiments(), *labels);
  ASSERT_TRUE(tour.has_value()) << tour.error().message;
  EXPECT_TRUE(tour->planned.empty());
  const auto chapter = [](const std::string& id) { return id.substr(0, id.find('/')); };
  std::set<std::string> visited, all;
  for (const Selection& selection : tour->selections) visited.insert(chapter(selection.experiment));
  for (const ExperimentInfo& experiment : experiments()) all.insert(chapter(experiment.id));
  all.erase("labs");  // a lab is a long ladder, not a first look
  EXPECT_EQ(visited, all);
}

TEST(Registry, TheCatalogSaysWhatTheTreeHas) {
  const auto catalog = parse_catalog(catalog_csv());
  ASSERT_TRUE(catalog.has_value()) << catalog.error().message;
  for (const std::string& breach : catalog_breaches(*catalog, experiments(), FATHOM_SOURCE_TREE))
    ADD_FAILURE() << breach;
  const auto chapters = parse_chapters(chapters_toml());
  ASSERT_TRUE(chapters.has_value()) << chapters.error().message;
  for (const std::string& unknown : coverage_of(*chapters, *catalog, experiments(), {}).unknown)
    ADD_FAILURE() << unknown;
}

TEST(Registry, EngineVariantsNameTheFileOfTheirOp) {
  int engine = 0;
  for (const ExperimentInfo& experiment : experiments())
    for (const VariantInfo& variant : experiment.variants) {
      if (variant.op.empty()) {
        EXPECT_NE(variant.kind, Kind::engine) << experiment.id << "/" << variant.id;
        continue;
      }
      ++engine;
      EXPECT_TRUE(variant.op.starts_with("kernels/")) << variant.op;
      EXPECT_TRUE(std::filesystem::exists(std::string(FATHOM_SOURCE_TREE "/src/") + variant.op))
          << variant.op;
    }
  EXPECT_GE(engine, 8);
}

// Check points include zero, the smallest size, and sizes that no tile divides. A session has no sizes: its
// outputs are compared token by token.
void expect_checks_at_the_edges(const ExperimentInfo& experiment) {
  std::set<int64_t> sizes;
  for (const Axis& axis : experiment.check_at)
    for (const Value& value : axis.values)
      if (const auto* n = std::get_if<int64_t>(&value))
        sizes.insert(*n);
      else if (const auto* shape = std::get_if<std::string>(&value))  // "65x264"
        for (size_t at = 0; (at = shape->find_first_of("0123456789", at)) != std::string::npos;) {
          size_t digits = 0;
          sizes.insert(std::stoll(shape->substr(at), &digits));
          at += digits;
        }
  EXPECT_TRUE(sizes.count(0)) << "check_at has no 0";
  EXPECT_GE(sizes.size(), 4u);
  EXPECT_TRUE(std::any_of(sizes.begin(), sizes.end(), [](int64_t n) { return (n & (n - 1)) != 0; }))
      << "check_at has powers of two only";
}

TEST(Registry, ExperimentsAskPredictAndProveTheEdges) {
  ASSERT_GE(experiments().size(), 26u);
  for (const ExperimentInfo& experiment : experiments()) {
    SCOPED_TRACE(experiment.id);
    EXPECT_TRUE(experiment.question.ends_with("?"));
    EXPECT_GE(experiment.variants.size(), 2u);
    EXPECT_FALSE(experiment.axes.empty());
    EXPECT_FALSE(source_hash(experiment.folder).empty());
    if (experiment.shape == Shape::call) expect_checks_at_the_edges(experiment);
    for (const VariantInfo& variant : experiment.variants) EXPECT_FALSE(variant.idea.empty()) << variant.id;
    EXPECT_TRUE(std::any_of(experiment.variants.begin(), experiment.variants.end(), [](const VariantInfo& v) {
      return v.prediction.of != Prediction::Of::nothing;
    })) << "nothing was predicted";
  }
}

// The passages of notes.md that begin with **Failed predictions, each up to the next line that begins in bold
// or is a heading.
std::string failed_predictions_of(const ExperimentInfo& experiment) {
  std::ifstream notes(std::string(FATHOM_SOURCE_TREE "/") + experiment.folder + "/notes.md");
  std::string passages;
  bool inside = false;
  for (std::string line; std::getline(notes, line);) {
    const bool begins = line.find("**Failed predictions") != std::string::npos;
    inside            = begins || (inside && !line.starts_with("**") && !line.starts_with("#"));
    if (inside) passages += line + "\n";
  }
  return passages;
}

// A reader of a committed record finds in notes.md why a prediction failed: at least the variant is named
// there.
TEST(Registry, NotesNameEveryVariantWhosePredictionFailed) {
  int failed = 0;
  std::set<std::string> unnamed;
  for (const auto& file : std::filesystem::recursive_directory_iterator(FATHOM_SOURCE_TREE "/results")) {
    if (file.path().extension() != ".json") continue;
    const auto run = read_run(file.path().string());
    if (!run) continue;  // beside the records lie tables of other measurements
    for (const ExperimentRecord& record : run->experiments) {
      const ExperimentInfo* experiment = find_experiment(record.id);
      ASSERT_NE(experiment, nullptr) << file.path() << ": there is no " << record.id;
      const std::string passages = failed_predictions_of(*experiment);
      for (const PointRecord& point : record.points)
        for (const VariantRecord& variant : point.variants) {
          if (!variant.prediction || variant.prediction->held != false) continue;
          ++failed;
          if (passages.find("`" + variant.id + "`") == std::string::npos)
            unnamed.insert(record.id + "/" + variant.id);
        }
    }
  }
  EXPECT_GE(failed, 100);
  for (const std::string& variant : unnamed)
    ADD_FAILURE() << variant
                  << " failed a prediction, and **Failed predictions in its notes.md does not name it";
}

// By experiment: every ratio between two variants of a point, at all points of its committed records.
using RecordedRatios = std::map<std::string, std::vector<double>>;

RecordedRatios recorded_ratios() {
  RecordedRatios ratios;
  for (const auto& file : std::filesystem::recursive_directory_iterator(FATHOM_SOURCE_TREE "/results")) {
    if (file.path().extension() != ".json") continue;
    const auto run = read_run(file.path().string());
    if (!run) continue;
    for (const ExperimentRecord& record : run->experiments)
      for (const PointRecord& point : record.points) {
        std::vector<double> speeds = {1};  // the baseline's
        for (const VariantRecord& variant : point.variants)
          if (variant.ratio) speeds.push_back(variant.ratio->median);
        for (const double a : speeds)
          for (const double b : speeds) ratios[record.id].push_back(a / b);
      }
  }
  return ratios;
}

// Whether `text` has `name` between characters that cannot be part of it.
bool names(const std::string& text, const std::string& name) {
  const auto in_name = [&](size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_');
  };
  for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; ++at)
    if ((at == 0 || !in_name(at - 1)) && !in_name(at + name.size())) return true;
  return false;
}

struct RatioCheck {
  int checked = 0;  // ratios
  std::vector<std::string> breaches;
};

// Numbers in the catalog are typed. Where a row names one recorded experiment, each "1.72x" in it must be a
// ratio of the records, within one in the last digit; and no row may say of a recorded experiment that it has
// no record.
RatioCheck check_against_records(const std::vector<CatalogRow>& catalog,
                                 const std::vector<ExperimentInfo>& experiments,
                                 const RecordedRatios& recorded) {
  static const std::regex ratio("(^|[^0-9.,])([0-9]+[.][0-9][0-9])x");
  RatioCheck found;
  for (const CatalogRow& row : catalog) {
    std::vector<std::string> with, without;
    for (const ExperimentInfo& experiment : experiments)
      if (names(row.where, experiment.id) || names(row.where, experiment.folder)) {
        (recorded.count(experiment.id) > 0 ? with : without).push_back(experiment.id);
        if (recorded.count(experiment.id) > 0 && names(row.where, experiment.id + " has no record"))
          found.breaches.push_back(fmt::format("{}: {} has a record", row.id, experiment.id));
      }
    if (!with.empty() && without.empty() && names(row.where, "no record yet"))
      found.breaches.push_back(fmt::format("{}: says 'no record yet', but {} has one", row.id, with[0]));
    if (with.size() != 1) continue;
    const std::vector<double>& known = recorded.at(with[0]);
    for (std::sregex_iterator at(row.where.begin(), row.where.end(), ratio), end; at != end; ++at) {
      ++found.checked;
      const double said = std::stod((*at)[2]);
      if (std::none_of(known.begin(), known.end(), [&](double r) { return std::abs(r - said) < 0.0101; }))
        found.breaches.push_back(fmt::format("{}: {:.2f}x is no ratio of {}", row.id, said, with[0]));
    }
  }
  return found;
}

TEST(Registry, TheCatalogsRatiosAreThoseOfTheRecords) {
  const auto catalog = parse_catalog(catalog_csv());
  ASSERT_TRUE(catalog.has_value()) << catalog.error().message;
  const RatioCheck found = check_against_records(*catalog, experiments(), recorded_ratios());
  EXPECT_GE(found.checked, 50);
  for (const std::string& breach : found.breaches) ADD_FAILURE() << breach;
}

TEST(Registry, AWrongRatioAndADeniedRecordAreFound) {
  std::vector<ExperimentInfo> known(2);
  known[0].id     = "ch01/one";
  known[0].folder = "experiments/ch01_first/one";
  known[1].id     = "ch01/other";
  known[1].folder = "experiments/ch01_first/other";
  const RecordedRatios recorded{{"ch01/one", {1.476, 2.0}}};
  const auto breaches = [&](const std::string& where) {
    return check_against_records({{"area-001", "ch01", "", "", "works", where}}, known, recorded).breaches;
  };
  EXPECT_TRUE(breaches("ch01/one 1.48x, 2.00x").empty());
  EXPECT_EQ(breaches("ch01/one 1.48x, 1.72x"),
            std::vector<std::string>{"area-001: 1.72x is no ratio of ch01/one"});
  EXPECT_EQ(breaches("experiments/ch01_first/one/a.cpp (1.72x)").size(), 1u);
  EXPECT_EQ(breaches("ch01/one: no record yet").size(), 1u);
  EXPECT_EQ(breaches("proof (ch01/one has no record), ch01/other").size(), 1u);
  // Of which of two, or of an experiment without a record, is not known.
  EXPECT_TRUE(breaches("ch01/one, ch01/other 1.48x, no record yet").empty());
  EXPECT_TRUE(breaches("ch01/other 9.99x has no record; ch01/one_more 9.99x").empty());
}

}  // namespace
}  // namespace fathom::lab
