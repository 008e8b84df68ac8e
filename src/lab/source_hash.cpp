#include "lab/source_hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include "core/expect.h"

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

// A header stands for its implementations: a.h for a_cpu.cpp and a.cu.
void add_with_implementations(const fs::path& header, std::set<fs::path>& files) {
  const std::string stem = header.stem().string();
  for (const auto& entry : fs::directory_iterator(header.parent_path())) {
    const std::string name = entry.path().stem().string();
    if (is_source(entry.path()) && (name == stem || name.starts_with(stem + "_"))) files.insert(entry.path());
  }
}

void add_folder(const fs::path& folder, std::set<fs::path>& files) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && is_source(entry.path())) files.insert(entry.path());
}

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> folders) {
  return std::any_of(folders.begin(), folders.end(),
                     [&](std::string_view folder) { return name.starts_with(folder); });
}

bool is_harness(std::string_view name) { return starts_with_any(name, {"lab/", "measure/", "machine/"}); }

}  // namespace

SourceHasher::SourceHasher(const fs::path& root) : root_(fs::weakly_canonical(root)) {}

const SourceTokens& SourceHasher::tokens(const fs::path& file) {
  const auto [place, added] = tokens_.try_emplace(file);
  if (added && file.extension() == ".py")
    place->second.text = read_file(file);
  else if (added)
    place->second = tokens_of(read_file(file));
  return place->second;
}

std::set<fs::path> SourceHasher::files_of(const std::string& folder) {
  std::set<fs::path> files;
  add_folder(root_ / folder, files);
  bool engine = false;
  for (size_t before = 0; before < files.size();) {  // until a pass finds nothing new
    before = files.size();
    for (const fs::path& file : std::set(files))
      for (const std::string& name : tokens(file).quoted_includes) {
        if (name.starts_with("engine/") && fs::exists(root_ / "src/engine") && !std::exchange(engine, true))
          add_folder(root_ / "src/engine", files);
        if (const fs::path header = root_ / "src" / name; fs::exists(header)) {
          if (engine ? !is_harness(name)
                     : starts_with_any(name, {"kernels/", "compile/", "model/", "load/", "search/"}))
            add_with_implementations(header, files);
          continue;
        }
        for (const fs::path& header : {file.parent_path() / name, root_ / name})
          if (fs::exists(header)) {
            const std::string place = fs::relative(header, root_ / "experiments").generic_string();
            if (!place.starts_with("..")) add_with_implementations(fs::weakly_canonical(header), files);
            break;
          }
      }
  }
  return files;
}

std::string SourceHasher::hash(const std::string& folder) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (const fs::path& file : files_of(folder)) {
    // Lengths first, so that no text can pass for another split of names and contents.
    const std::string name  = fs::relative(file, root_).generic_string();
    const std::string& text = tokens(file).text;
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
