#include "compile/tune_cache.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <sstream>

#include "compile/piece.h"
#include "core/atomic_file.h"
#include "core/expect.h"
#include "core/json_field.h"
#include "core/strict_json.h"
#include "core/thread_pool.h"
#include "machine/isolation.h"
#include "machine/machine_id.h"

namespace fathom::compile {
namespace {

namespace fs = std::filesystem;
using Json   = nlohmann::json;

constexpr const char* kTunedSchema = "fathom.tuned/1";

// Changes with the processor, the kernel and this code.
std::string identity() {
  return machine::machine_identity(machine::topology(), machine::isolation(), kTuneVersion);
}

std::vector<int64_t> buckets_of(std::span<const int64_t> symbols) {
  std::vector<int64_t> buckets;
  for (const int64_t symbol : symbols) buckets.push_back(bucket(symbol));
  return buckets;
}

std::string file_name(const std::string& content, const std::vector<int64_t>& buckets, int threads) {
  const std::string key = fmt::format("{}\n{}\n{}", threads, fmt::join(buckets, ","), content);
  const auto hash       = XXH3_128bits(key.data(), key.size());
  return fmt::format("{}-{}-{:016x}{:016x}.json", machine::machine_id(), identity(), hash.high64, hash.low64);
}

Json to_json(const TuneCache::Entry& entry) {
  Json schedules = Json::array();
  for (const Schedule& schedule : entry.tuned.schedules)
    schedules.push_back(
        {{"block", schedule.block}, {"chunk", schedule.chunk}, {"threads", schedule.threads}});
  return {{"schema", kTunedSchema},
          {"identity", identity()},
          {"program", entry.program},
          {"content", entry.content},
          {"buckets", entry.buckets},
          {"threads", entry.threads},
          {"schedules", std::move(schedules)},
          {"default_ns", entry.tuned.default_ns},
          {"best_ns", entry.tuned.best_ns},
          {"faster", entry.tuned.faster},
          {"tried", entry.tuned.tried},
          {"of", entry.tuned.of}};
}

// Throws nlohmann's exceptions where a field is missing or has another type.
Schedule schedule_of(const Json& json) {
  return {json.at("block").get<int64_t>(), json.at("chunk").get<int64_t>(), json.at("threads").get<bool>()};
}

bool is_candidate(const Schedule& schedule) {
  const auto among = [](const auto& choices, int64_t choice) {
    return std::find(std::begin(choices), std::end(choices), choice) != std::end(choices);
  };
  return among(kBlocks, schedule.block) && among(kChunks, schedule.chunk);
}

Result<TuneCache::Entry> entry_of(const Json& json) {
  TuneCache::Entry entry;
  try {
    if (json.at("schema") != kTunedSchema || json.at("identity") != identity())
      return Error{"it is of another machine or version"};
    json.at("program").get_to(entry.program);
    json.at("content").get_to(entry.content);
    json.at("buckets").get_to(entry.buckets);
    json.at("threads").get_to(entry.threads);
    json.at("default_ns").get_to(entry.tuned.default_ns);
    json.at("best_ns").get_to(entry.tuned.best_ns);
    json.at("faster").get_to(entry.tuned.faster);
    json.at("tried").get_to(entry.tuned.tried);
    json.at("of").get_to(entry.tuned.of);
    for (const Json& schedule : json.at("schedules")) entry.tuned.schedules.push_back(schedule_of(schedule));
  } catch (const Json::exception& problem) {
    return Error{fmt::format("it is damaged: {}", problem.what())};
  }
  if (!std::all_of(entry.tuned.schedules.begin(), entry.tuned.schedules.end(), is_candidate))
    return Error{"it is damaged: a schedule is none of the tuner's"};
  return entry;
}

Result<TuneCache::Entry> read_entry(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error{"it cannot be read"};
  std::ostringstream text;
  text << in.rdbuf();
  const Result<Json> json = parse_strict_json(text.str());
  if (!json) return Error{fmt::format("it is damaged: {}", json.error().message)};
  Result<TuneCache::Entry> entry = entry_of(*json);
  if (entry && path.filename() != file_name(entry->content, entry->buckets, entry->threads))
    return Error{"its name is not that of the program in it"};
  return entry;
}

// This machine's, or another's: ours by the form of their names.
bool is_cache_file(const fs::path& path) {
  const std::string name = path.filename();
  constexpr size_t kTail = 1 + 16 + 1 + 32 + 5;  // -identity-hash.json
  if (name.size() <= kTail || !name.ends_with(".json")) return false;
  const std::string_view tail = std::string_view(name).substr(name.size() - kTail);
  const auto hexadecimal      = [](std::string_view text) {
    return text.find_first_not_of("0123456789abcdef") == text.npos;
  };
  return tail[0] == '-' && hexadecimal(tail.substr(1, 16)) && tail[17] == '-' &&
         hexadecimal(tail.substr(18, 32));
}

}  // namespace

TuneCache::TuneCache(fs::path folder) : folder_(std::move(folder)) {}

fs::path TuneCache::default_folder() {
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder && *folder == '/')
    return fs::path(folder) / "fathom" / "compile";
  if (const char* home = std::getenv("HOME"); home && *home)
    return fs::path(home) / ".cache" / "fathom" / "compile";
  throw SystemError("nowhere to keep tuned schedules: set XDG_CACHE_HOME or HOME");
}

fs::path TuneCache::path_of(const Graph& graph, std::span<const int64_t> symbols, int threads) const {
  return folder_ / file_name(content_of(graph), buckets_of(symbols), threads);
}

std::optional<Tuned> TuneCache::find(const Graph& graph, const Plan& plan, std::span<const int64_t> symbols,
                                     int threads) const {
  const std::string content = content_of(graph);
  const fs::path path       = folder_ / file_name(content, buckets_of(symbols), threads);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  Result<Entry> entry = read_entry(path);
  // The hash in the name is checked against the content; this is for two contents with one hash.
  if (entry && entry->content != content) entry = Error{"it is another program's"};
  if (entry && entry->tuned.schedules.size() != plan.groups.size())
    entry = Error{fmt::format("it has {} schedules for {} launches", entry->tuned.schedules.size(),
                              plan.groups.size())};
  if (entry) return std::move(entry->tuned);
  fmt::print(stderr, "warning: {} is ignored: {}; tune again, or delete it\n", path.string(),
             entry.error().message);
  return std::nullopt;
}

bool TuneCache::store(const Graph& graph, std::span<const int64_t> symbols, int threads,
                      const Tuned& tuned) const {
  // The name of a file that is being written is the process's: its threads take turns.
  static std::mutex one_writer;
  const std::lock_guard lock(one_writer);
  const Entry entry{graph.name, content_of(graph), buckets_of(symbols), threads, tuned};
  const fs::path path = folder_ / file_name(entry.content, entry.buckets, threads);
  try {
    write_file_atomically(path, to_json(entry).dump(1) + "\n");
    return true;
  } catch (const std::exception& problem) {
    fmt::print(stderr,
               "warning: tuned schedules are not kept, point XDG_CACHE_HOME at a writable folder: {}\n",
               problem.what());
    return false;
  }
}

std::vector<TuneCache::File> TuneCache::files() const {
  std::vector<File> files;
  std::error_code none;  // no folder: no files
  for (const fs::directory_entry& at : fs::directory_iterator(folder_, none)) {
    if (!is_cache_file(at.path())) continue;
    Result<Entry> entry = read_entry(at.path());
    if (entry)
      files.push_back({at.path(), std::move(*entry), ""});
    else
      files.push_back({at.path(), std::nullopt, entry.error().message});
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.path < b.path; });
  return files;
}

int64_t TuneCache::clear() const {
  int64_t gone = 0;
  for (const File& file : files()) {
    std::error_code failed;
    gone += fs::remove(file.path, failed);
  }
  return gone;
}

Scheduler cached_schedules(TuneCache cache) {
  return [cache = std::move(cache)](const Graph& graph, const Plan& plan, std::span<const int64_t> symbols,
                                    ThreadPool& pool) {
    const std::optional<Tuned> known = cache.find(graph, plan, symbols, pool.threads());
    return known ? known->schedules : Schedules(plan.groups.size());
  };
}

Scheduler autotuned_schedules(TuneCache cache, TuneOptions options) {
  return [cache = std::move(cache), options](const Graph& graph, const Plan& plan,
                                             std::span<const int64_t> symbols, ThreadPool& pool) {
    if (const std::optional<Tuned> known = cache.find(graph, plan, symbols, pool.threads()))
      return known->schedules;
    const Tuned tuned = tune(graph, plan, symbols, pool, options);
    cache.store(graph, symbols, pool.threads(), tuned);
    return tuned.schedules;
  };
}

}  // namespace fathom::compile
