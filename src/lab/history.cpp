#include "lab/history.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>

#include "lab/target.h"

namespace fathom::lab {
namespace {

namespace fs = std::filesystem;

constexpr int kVersion    = 1;     // of the tables, in PRAGMA user_version
constexpr int kPatienceMs = 5000;  // for another fathom that is writing

using Database  = std::unique_ptr<sqlite3, decltype(&sqlite3_close)>;
using Statement = std::unique_ptr<sqlite3_stmt, decltype(&sqlite3_finalize)>;

struct Failed {
  int code;
  std::string message;
};

void check(sqlite3* database, int code) {
  if (code != SQLITE_OK && code != SQLITE_ROW && code != SQLITE_DONE)
    throw Failed{code & 0xff, sqlite3_errmsg(database)};
}

void execute(sqlite3* database, const char* sql) {
  check(database, sqlite3_exec(database, sql, nullptr, nullptr, nullptr));
}

Statement prepare(sqlite3* database, const char* sql) {
  sqlite3_stmt* statement = nullptr;
  check(database, sqlite3_prepare_v2(database, sql, -1, &statement, nullptr));
  return {statement, sqlite3_finalize};
}

void set(const Statement& statement, int index, const std::string& text) {
  sqlite3_bind_text(statement.get(), index, text.c_str(), -1, SQLITE_TRANSIENT);
}

void set(const Statement& statement, int index, const std::optional<double>& value) {
  if (value && std::isfinite(*value))
    sqlite3_bind_double(statement.get(), index, *value);
  else
    sqlite3_bind_null(statement.get(), index);
}

std::string text(const Statement& statement, int column) {
  const auto* value = reinterpret_cast<const char*>(sqlite3_column_text(statement.get(), column));
  return value ? value : "";
}

int version(sqlite3* database) {
  const Statement statement = prepare(database, "PRAGMA user_version");
  check(database, sqlite3_step(statement.get()));
  return sqlite3_column_int(statement.get(), 0);
}

Database open_database(const std::string& path, int flags) {
  sqlite3* raw   = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &raw, flags, nullptr);
  Database database(raw, sqlite3_close);
  if (!raw) throw Failed{code, "out of memory"};
  check(raw, code);
  sqlite3_busy_timeout(raw, kPatienceMs);
  const int found = version(raw);
  if (found > kVersion)
    throw Failed{SQLITE_SCHEMA,
                 fmt::format("a newer fathom wrote it (version {}, this one knows {})", found, kVersion)};
  return database;
}

Error explained(const std::string& path, const Failed& failed) {
  std::string remedy;
  switch (failed.code) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      remedy = "another program holds it; try again when that has finished";
      break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      remedy = "the file is damaged; move it away and a new history begins";
      break;
    case SQLITE_FULL:
      remedy = "the disk is full";
      break;
    default:
      remedy = "set FATHOM_HISTORY or XDG_STATE_HOME to a place that this user can write";
  }
  return Error{fmt::format("history {}: {}: {}", path, failed.message, remedy)};
}

void make_tables(sqlite3* database) {
  execute(database, R"(
    CREATE TABLE IF NOT EXISTS run (
      id INTEGER PRIMARY KEY, machine TEXT NOT NULL, started TEXT NOT NULL, label TEXT NOT NULL,
      commit_id TEXT NOT NULL, UNIQUE (machine, started, label));
    CREATE TABLE IF NOT EXISTS result (
      run INTEGER NOT NULL REFERENCES run(id), experiment TEXT NOT NULL, variant TEXT NOT NULL, at TEXT NOT NULL,
      source_hash TEXT NOT NULL, time_ns REAL NOT NULL, lo REAL, hi REAL, ratio REAL, ratio_lo REAL, ratio_hi REAL,
      share REAL, PRIMARY KEY (run, experiment, variant, at)) WITHOUT ROWID;
    PRAGMA user_version = 1;)");
}

std::string commit_of(const RunRecord& run) {
  const auto manifest = nlohmann::json::parse(run.manifest, nullptr, false);
  if (!manifest.is_object()) return "";
  const auto commit = manifest.find("commit");
  return commit != manifest.end() && commit->is_string() ? commit->get<std::string>() : "";
}

// False when the run is there already.
bool insert_run(sqlite3* database, const RunRecord& run) {
  const Statement statement =
      prepare(database, "INSERT OR IGNORE INTO run (machine, started, label, commit_id) VALUES (?, ?, ?, ?)");
  set(statement, 1, run.machine);
  set(statement, 2, run.started);
  set(statement, 3, run.label);
  set(statement, 4, commit_of(run));
  check(database, sqlite3_step(statement.get()));
  return sqlite3_changes(database) == 1;
}

void insert_results(sqlite3* database, const RunRecord& run) {
  const int64_t id = sqlite3_last_insert_rowid(database);
  const Statement statement =
      prepare(database, "INSERT OR REPLACE INTO result VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  for (const ExperimentRecord& experiment : run.experiments)
    for (const PointRecord& point : experiment.points)
      for (const VariantRecord& variant : point.variants) {
        if (variant.status != Outcome::ok || !variant.time_ns || variant.verdict == "INVALID") continue;
        const auto& ratio = variant.ratio;
        sqlite3_bind_int64(statement.get(), 1, id);
        set(statement, 2, experiment.id);
        set(statement, 3, variant.id);
        set(statement, 4, point.at.to_string());
        set(statement, 5, experiment.source_hash);
        set(statement, 6, std::optional(variant.time_ns->median));
        set(statement, 7, std::optional(variant.time_ns->lo));
        set(statement, 8, std::optional(variant.time_ns->hi));
        set(statement, 9, ratio ? std::optional(ratio->median) : std::nullopt);
        set(statement, 10, ratio ? std::optional(ratio->lo) : std::nullopt);
        set(statement, 11, ratio ? std::optional(ratio->hi) : std::nullopt);
        set(statement, 12, variant.share_of_limit);
        check(database, sqlite3_step(statement.get()));
        sqlite3_reset(statement.get());
      }
}

}  // namespace

std::string history_path() {
  const auto value_of = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (const std::string path = value_of("FATHOM_HISTORY"); !path.empty()) return path;
  if (const std::string state = value_of("XDG_STATE_HOME"); !state.empty())
    return state + "/fathom/history.sqlite";
  return value_of("HOME") + "/.local/state/fathom/history.sqlite";
}

Status append_history(const std::string& path, const RunRecord& run) {
  try {
    std::error_code ignored;  // open() reports it better
    if (const fs::path folder = fs::path(path).parent_path(); !folder.empty())
      fs::create_directories(folder, ignored);
    const Database database = open_database(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    execute(database.get(), "BEGIN IMMEDIATE");  // closing without COMMIT rolls back
    make_tables(database.get());
    if (insert_run(database.get(), run)) insert_results(database.get(), run);
    execute(database.get(), "COMMIT");
    return Ok{};
  } catch (const Failed& failed) {
    return explained(path, failed);
  }
}

Result<std::vector<Series>> read_history(const std::string& path, const HistoryFilter& filter) {
  std::vector<Series> all;
  try {
    const std::regex pattern(filter.pattern);
    if (!fs::exists(path)) return all;
    const Database database = open_database(path, SQLITE_OPEN_READONLY);
    if (version(database.get()) == 0) return all;
    const Statement statement = prepare(database.get(), R"(
      SELECT machine, experiment, variant, at, started, label, commit_id, source_hash, time_ns, ratio
      FROM result JOIN run ON run.id = result.run
      WHERE ?1 = '' OR machine = ?1 ORDER BY machine, experiment, at, variant, started, run.id)");
    set(statement, 1, filter.machine);
    int code;
    while ((code = sqlite3_step(statement.get())) == SQLITE_ROW) {
      Series next{text(statement, 0), text(statement, 1), text(statement, 2), text(statement, 3), {}};
      const std::string id =
          fmt::format("{}/{}{}{}", next.experiment, next.variant, next.at.empty() ? "" : "?", next.at);
      if (!std::regex_search(id, pattern)) continue;
      if (all.empty() || all.back().machine != next.machine || all.back().experiment != next.experiment ||
          all.back().variant != next.variant || all.back().at != next.at)
        all.push_back(std::move(next));
      HistoryPoint point{.started     = text(statement, 4),
                         .label       = text(statement, 5),
                         .commit      = text(statement, 6),
                         .source_hash = text(statement, 7),
                         .time_ns     = sqlite3_column_double(statement.get(), 8),
                         .ratio       = {}};
      if (sqlite3_column_type(statement.get(), 9) != SQLITE_NULL)
        point.ratio = sqlite3_column_double(statement.get(), 9);
      all.back().points.push_back(std::move(point));
    }
    check(database.get(), code);
  } catch (const std::regex_error& error) {
    return Error{fmt::format("'{}' is not a regular expression: {}", filter.pattern, error.what())};
  } catch (const Failed& failed) {
    return explained(path, failed);
  }
  if (filter.last > 0)
    for (Series& series : all)
      if (const int64_t extra = std::ssize(series.points) - filter.last; extra > 0)
        series.points.erase(series.points.begin(), series.points.begin() + extra);
  return all;
}

SeriesChanges changes_of(const Series& series) {
  std::vector<double> times, ratios;
  for (const HistoryPoint& point : series.points) {
    times.push_back(point.time_ns);
    if (point.ratio) ratios.push_back(*point.ratio);
  }
  SeriesChanges changes{.time = measure::change_points(times), .ratio = {}};
  if (ratios.size() == times.size()) changes.ratio = measure::change_points(ratios);
  return changes;
}

}  // namespace fathom::lab
