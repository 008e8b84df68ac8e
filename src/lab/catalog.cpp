#include "lab/catalog.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

namespace fathom::lab {
namespace {

constexpr std::string_view kHeader = "id,chapter,name,what,status,where";
constexpr size_t kCells            = 6;

// The records of a CSV text (RFC 4180). A quoted cell may hold commas and doubled quotes, but no line break:
// a line is a row.
Result<std::vector<std::string>> csv_cells(std::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  if (quoted) return Error{"a quote is not closed"};
  return cells;
}

bool is_status(std::string_view text) { return text == "works" || text == "partial" || text == "none"; }

bool is_path_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) ||
         std::string_view("_./*-").find(c) != std::string_view::npos;
}

bool is_in_the_tree(std::string_view word) {
  constexpr std::array kRoots = {"src/",  "experiments/", "tests/",  "tools/",
                                 "docs/", "results/",     "models/", ".ci/"};
  return std::any_of(kRoots.begin(), kRoots.end(), [&](const char* root) { return word.starts_with(root); });
}

// "ch12/graph_replay/eager" begins with the id "ch12/graph_replay"; empty for other words.
std::string experiment_in(std::string_view word) {
  const bool chapter = word.size() > 5 && word.starts_with("ch") &&
                       std::isdigit(static_cast<unsigned char>(word[2])) &&
                       std::isdigit(static_cast<unsigned char>(word[3])) && word[4] == '/';
  return chapter ? std::string(word.substr(0, word.find('/', 5))) : std::string();
}

bool exists(const std::filesystem::path& root, const std::string& pattern) {
  glob_t found{};
  const int status = glob((root / pattern).c_str(), 0, nullptr, &found);
  globfree(&found);
  return status == 0;
}

bool is_test(std::string_view path) {
  return path.starts_with("tests/") || path.find("_test.") != std::string_view::npos;
}

void check_row(const CatalogRow& row, const std::set<std::string>& ids, const std::filesystem::path& root,
               std::vector<std::string>& breaches) {
  const Named named = named_in(row.where);
  for (const std::string& path : named.paths)
    if (!exists(root, path)) breaches.push_back(fmt::format("{}: there is no {}", row.id, path));
  for (const std::string& id : named.experiments)
    if (ids.count(id) == 0) breaches.push_back(fmt::format("{}: there is no experiment {}", row.id, id));
  const bool proved =
      !named.experiments.empty() || std::any_of(named.paths.begin(), named.paths.end(), [](const auto& path) {
        return is_test(path) || path.starts_with("experiments/ch") || path.starts_with("experiments/labs/");
      });
  if (row.status == "works" && !proved)
    breaches.push_back(
        fmt::format("{}: says 'works' and names no experiment or test that proves it", row.id));
}

}  // namespace

Result<std::vector<CatalogRow>> parse_catalog(std::string_view csv) {
  std::vector<CatalogRow> rows;
  std::set<std::string> ids;
  for (size_t begin = 0, number = 1; begin < csv.size(); ++number) {
    const size_t end            = std::min(csv.find('\n', begin), csv.size());
    const std::string_view line = csv.substr(begin, end - begin);
    begin                       = end + 1;
    if (number == 1) {
      if (line != kHeader) return Error{fmt::format("catalog.csv, line 1: the columns are {}", kHeader)};
      continue;
    }
    const auto wrong = [&](std::string_view what) {
      return Error{fmt::format("catalog.csv, line {}: {}", number, what)};
    };
    auto cells = csv_cells(line);
    if (!cells) return wrong(cells.error().message);
    if (cells->size() != kCells) return wrong(fmt::format("{} cells where {} belong", cells->size(), kCells));
    CatalogRow row{(*cells)[0], (*cells)[1], (*cells)[2], (*cells)[3], (*cells)[4], (*cells)[5]};
    if (!is_status(row.status))
      return wrong(fmt::format("'{}' is no status: works, partial or none", row.status));
    if (row.where.empty()) return wrong(row.id + " does not say what is there or missing");
    if (!ids.insert(row.id).second) return wrong(row.id + " is there twice");
    rows.push_back(std::move(row));
  }
  return rows;
}

Named named_in(std::string_view text) {
  Named named;
  for (size_t begin = 0; begin < text.size();) {
    if (!is_path_character(text[begin])) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < text.size() && is_path_character(text[end])) ++end;
    std::string_view word = text.substr(begin, end - begin);
    begin                 = end;
    while (word.ends_with('.')) word.remove_suffix(1);  // of the sentence
    if (is_in_the_tree(word)) named.paths.emplace_back(word);
    if (const std::string id = experiment_in(word); !id.empty()) named.experiments.push_back(id);
  }
  return named;
}

std::vector<std::string> catalog_breaches(const std::vector<CatalogRow>& catalog,
                                          const std::vector<ExperimentInfo>& experiments,
                                          const std::filesystem::path& root) {
  std::vector<std::string> breaches;
  std::set<std::string> ids, none;
  for (const ExperimentInfo& experiment : experiments) ids.insert(experiment.id);
  for (const CatalogRow& row : catalog) {
    check_row(row, ids, root, breaches);
    if (row.status == "none") none.insert(row.id);
  }
  for (const ExperimentInfo& experiment : experiments)
    for (const std::string& row : experiment.catalog)
      if (none.count(row) > 0)
        breaches.push_back(fmt::format("{}: says 'none', but {} names it", row, experiment.id));
  return breaches;
}

}  // namespace fathom::lab
