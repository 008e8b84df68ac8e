// Build-time program: writes the tables behind lab/source_hash.h.
//   write_source_tables <source root> <output .cpp> <compiler> <flags>
// The output is replaced only when it changed, so that a build with nothing to do does nothing.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>

#include "lab/source_hash.h"

namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  if (!pipe) return text;
  for (int c; (c = std::fgetc(pipe.get())) != EOF;) text += static_cast<char>(c);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

std::set<std::string> experiment_folders(const fs::path& root) {
  std::set<std::string> folders;
  for (const auto& entry : fs::recursive_directory_iterator(root / "experiments"))
    if (entry.path().filename() == "experiment.cpp")
      folders.insert(fs::relative(entry.path().parent_path(), root).generic_string());
  return folders;
}

// Scripts that the program hands to Python.
std::set<std::string> scripts(const fs::path& root) {
  std::set<std::string> paths;
  for (const char* folder : {"experiments", "src/lab"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder))
      if (entry.path().extension() == ".py") paths.insert(fs::relative(entry.path(), root).generic_string());
  return paths;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(stderr, "usage: write_source_tables <source root> <output .cpp> <compiler> <flags>\n");
    return 5;
  }
  const fs::path root = fs::canonical(argv[1]), output = argv[2];
  const std::string git    = fmt::format("git -C '{}' ", root.string());
  const std::string commit = output_of(git + "rev-parse --short=12 HEAD 2>/dev/null");
  const bool dirty =
      !commit.empty() && !output_of(git + "status --porcelain --untracked-files=no 2>/dev/null").empty();

  fathom::lab::SourceHasher hasher(root);
  std::string table;
  for (const std::string& folder : experiment_folders(root))
    table += fmt::format("    {{\"{}\", \"{}\"}},\n", folder, hasher.hash(folder));
  std::string python;
  for (const std::string& path : scripts(root))
    python += fmt::format("    {{\"{}\", R\"python({})python\"}},\n", path, contents(root / path));
  const std::string text = fmt::format(
      R"(// Written by write_source_tables.
#include <map>

#include "lab/source_hash.h"

namespace fathom::lab {{

std::string_view source_hash(std::string_view folder) {{
  static const std::map<std::string_view, std::string_view> hashes = {{
{}  }};
  const auto found = hashes.find(folder);
  return found == hashes.end() ? std::string_view() : found->second;
}}

std::string_view python_source(std::string_view path) {{
  static const std::map<std::string_view, std::string_view> scripts = {{
{}  }};
  const auto found = scripts.find(path);
  return found == scripts.end() ? std::string_view() : found->second;
}}

std::string_view build_commit() {{ return "{}"; }}
bool build_dirty() {{ return {}; }}
std::string_view build_compiler() {{ return R"text({})text"; }}
std::string_view build_flags() {{ return R"text({})text"; }}
std::string_view chapters_toml() {{ return R"toml({})toml"; }}
std::string_view labels_toml() {{ return R"toml({})toml"; }}
std::string_view catalog_csv() {{ return R"csv({})csv"; }}

}}  // namespace fathom::lab
)",
      table, python, commit, dirty, argv[3], argv[4], contents(root / "experiments/chapters.toml"),
      contents(root / "experiments/labels.toml"), contents(root / "experiments/catalog.csv"));
  if (contents(output) != text) std::ofstream(output, std::ios::binary) << text;
}
