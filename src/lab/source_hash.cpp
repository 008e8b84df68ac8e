#include "lab/source_hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include "core/expect.h"
#include "lab/source_tokens.h"

namespace fathom::lab {
namespace {

namespace fs = std::filesystem;

bool is_source(const fs::path& file) {
  const std::string extension = file.extension().string(), stem = file.stem().string();
  return (extension == ".cpp" || extension == ".h" || extension == ".cu" || extension == ".cuh" ||
          extension == ".py") &&
         !stem.ends_with("_test");
}

std::string read_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw SystemError(fmt::format("cannot read {}, whose hash was asked for", file.string()));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> sources_in(const fs::path& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && is_source(entry.path())) files.push_back(entry.path().string());
  return files;
}

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> folders) {
  return std::any_of(folders.begin(), folders.end(),
                     [&](std::string_view folder) { return name.starts_with(folder); });
}

bool is_harness(std::string_view name) { return starts_with_any(name, {"lab/", "measure/", "machine/"}); }

}  // namespace

SourceHasher::SourceHasher(const fs::path& root) : root_(fs::weakly_canonical(root)) {}

// A header stands for its implementations: a.h for a_cpu.cpp and a.cu.
const SourceHasher::Files& SourceHasher::with_implementations(const fs::path& header) {
  const auto [place, added] = implementations_.try_emplace(header.string());
  if (!added) return place->second;
  const std::string stem = header.stem().string();
  for (const std::string& file : sources_in(header.parent_path()))
    if (const std::string name = fs::path(file).stem().string(); name == stem || name.starts_with(stem + "_"))
      place->second.push_back(file);
  return place->second;
}

SourceHasher::Include SourceHasher::found(const std::string& name, const fs::path& includer) {
  if (const fs::path header = root_ / "src" / name; fs::exists(header))
    return {.name = name, .of_src = true, .files = with_implementations(header)};
  for (const fs::path& header : {includer.parent_path() / name, root_ / name})
    if (fs::exists(header)) {
      const fs::path whole = fs::weakly_canonical(header);
      if (whole.lexically_relative(root_ / "experiments").generic_string().starts_with("..")) break;
      return {.name = name, .of_src = false, .files = with_implementations(whole)};
    }
  return {.name = name, .of_src = false, .files = {}};
}

const SourceHasher::Source& SourceHasher::source(const std::string& file) {
  const auto [place, added] = sources_.try_emplace(file);
  if (!added) return place->second;
  if (file.ends_with(".py")) {
    place->second.text = read_file(file);
    return place->second;
  }
  SourceTokens tokens = tokens_of(read_file(file));
  place->second.text  = std::move(tokens.text);
  for (const std::string& name : tokens.quoted_includes) place->second.includes.push_back(found(name, file));
  return place->second;
}

template <class Counts>
std::set<std::string> SourceHasher::closure(const std::vector<std::string>& folders, const Counts& counts) {
  std::set<std::string> files;
  std::vector<std::string> todo;
  const auto add = [&](const Files& more) {
    for (const std::string& file : more)
      if (files.insert(file).second) todo.push_back(file);
  };
  for (const std::string& folder : folders) add(sources_in(root_ / folder));
  while (!todo.empty()) {
    const std::string file = std::move(todo.back());
    todo.pop_back();
    for (const Include& include : source(file).includes)
      if (!include.of_src || counts(include.name)) add(include.files);
  }
  return files;
}

std::set<fs::path> SourceHasher::files_of(const std::string& folder) {
  std::set<std::string> files = closure({folder}, [](const std::string& name) {
    return starts_with_any(name, {"kernels/", "compile/", "model/", "load/", "search/"});
  });
  const bool engine           = std::any_of(files.begin(), files.end(), [&](const std::string& file) {
    const std::vector<Include>& includes = source(file).includes;
    return std::any_of(includes.begin(), includes.end(),
                                 [](const Include& include) { return include.name.starts_with("engine/"); });
  });
  if (engine && fs::exists(root_ / "src/engine"))
    files = closure({folder, "src/engine"}, [](const std::string& name) { return !is_harness(name); });
  return {files.begin(), files.end()};
}

std::string SourceHasher::hash(const std::string& folder) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (const fs::path& file : files_of(folder)) {
    // Lengths first, so that no text can pass for another split of names and contents.
    const std::string name  = file.lexically_relative(root_).generic_string();
    const std::string& text = source(file.string()).text;
    const std::string head  = fmt::format("{} {} {}\n", name.size(), text.size(), name);
    XXH3_64bits_update(state.get(), head.data(), head.size());
    XXH3_64bits_update(state.get(), text.data(), text.size());
  }
  return fmt::format("{:016x}", XXH3_64bits_digest(state.get()));
}

std::string hash_sources(const fs::path& root, const std::string& folder) {
  return SourceHasher(root).hash(folder);
}

}  // namespace fathom::lab
