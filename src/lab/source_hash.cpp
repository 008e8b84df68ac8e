#include "lab/source_hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <array>
#include <fstream>
#include <memory>
#include <regex>
#include <set>
#include <sstream>

#include "core/expect.h"

namespace fathom::lab {
namespace {

namespace fs = std::filesystem;

bool is_source(const fs::path& file) {
  const std::string extension = file.extension().string(), stem = file.stem().string();
  return (extension == ".cpp" || extension == ".h" || extension == ".cu" || extension == ".cuh") &&
         !stem.ends_with("_test");
}

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw SystemError(fmt::format("cannot read {}, whose hash was asked for", file.string()));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// A header stands for its implementations: rmsnorm.h for rmsnorm_cpu.cpp and rmsnorm.cu.
void add_with_implementations(const fs::path& header, std::set<fs::path>& files) {
  const std::string stem = header.stem().string();
  for (const auto& entry : fs::directory_iterator(header.parent_path())) {
    const std::string name = entry.path().stem().string();
    if (is_source(entry.path()) && (name == stem || name.starts_with(stem + "_"))) files.insert(entry.path());
  }
}

void add_includes(const fs::path& root, const fs::path& file, std::set<fs::path>& files) {
  static const std::regex include(R"(^[ \t]*#[ \t]*include[ \t]*"([^"]+)\")", std::regex::multiline);
  const std::string text = read(file);
  for (std::sregex_iterator match(text.begin(), text.end(), include), end; match != end; ++match) {
    const std::string name = (*match)[1];
    if (name.starts_with("kernels/")) {
      if (const fs::path header = root / "src" / name; fs::exists(header))
        add_with_implementations(header, files);
      continue;
    }
    for (const fs::path& header : {file.parent_path() / name, root / name})
      if (fs::exists(header)) {
        const std::string place = fs::relative(header, root / "experiments").generic_string();
        if (!place.starts_with("..")) add_with_implementations(fs::weakly_canonical(header), files);
        break;
      }
  }
}

}  // namespace

std::string hash_sources(const fs::path& given_root, const std::string& folder) {
  const fs::path root = fs::weakly_canonical(given_root);
  std::set<fs::path> files, followed;
  for (const auto& entry : fs::directory_iterator(root / folder))
    if (entry.is_regular_file() && is_source(entry.path())) files.insert(entry.path());
  while (followed.size() < files.size())
    for (const fs::path& file : std::set(files))
      if (followed.insert(file).second) add_includes(root, file, files);

  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (const fs::path& file : files) {
    // Lengths first, so that no text can pass for another split of names and contents.
    const std::string name = fs::relative(file, root).generic_string(), text = read(file);
    const std::string head = fmt::format("{} {} {}\n", name.size(), text.size(), name);
    XXH3_64bits_update(state.get(), head.data(), head.size());
    XXH3_64bits_update(state.get(), text.data(), text.size());
  }
  return fmt::format("{:016x}", XXH3_64bits_digest(state.get()));
}

}  // namespace fathom::lab
