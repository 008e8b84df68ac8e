// What this program was built from: hashes of every experiment's sources, the commit, and the three tables
// of experiments/ that it needs at run time. All compiled in (src/lab/source_tables.cmake), so that a bundle
// without sources still knows.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::lab {

// 16 hexadecimal digits (XXH3, 64 bits) of an experiment's sources, as the compiler sees them (tokens, see
// lab/source_tokens.h; Python as it is): every .cpp, .h, .cu, .cuh and .py file of the folder, and what they
// include of experiments/, src/kernels/, src/compile/, src/model/, src/load/ and src/search/, each header
// with its implementations beside it. An experiment that includes the engine has all of src/engine, with
// everything that includes of src/. The harness itself (src/lab, src/measure, src/machine) does not count,
// nor do tests and notes: they do not change what is measured. `folder` is relative to `root`:
// "experiments/ch07_memory_access/transpose_cpu".
std::string hash_sources(const std::filesystem::path& root, const std::string& folder);

// The same for many folders: every file is read once, and every header looked for once.
class SourceHasher {
 public:
  explicit SourceHasher(const std::filesystem::path& root);
  std::string hash(const std::string& folder);

 private:
  using Files = std::vector<std::string>;  // paths
  struct Include {
    std::string name;
    bool of_src = false;  // of src/; else of experiments/
    Files files;          // the header and its implementations; none where there is no such file
  };
  struct Source {
    std::string text;
    std::vector<Include> includes;
  };

  const Source& source(const std::string& file);
  Include found(const std::string& name, const std::filesystem::path& includer);
  const Files& with_implementations(const std::filesystem::path& header);
  // What is in the folders, and what that includes of src/ by `counts`, and of experiments/.
  template <class Counts>
  std::set<std::string> closure(const std::vector<std::string>& folders, const Counts& counts);
  std::set<std::filesystem::path> files_of(const std::string& folder);

  std::filesystem::path root_;
  std::map<std::string, Source> sources_;
  std::map<std::string, Files> implementations_;
};

// As of the build; empty for a folder it does not know.
std::string_view source_hash(std::string_view folder);

std::string_view build_commit();    // 12 digits; empty when it was not built in a git checkout
bool build_dirty();                 // tracked files differed from that commit
std::string_view build_compiler();  // "GNU 12.2.0"
std::string_view build_flags();     // "RelWithDebInfo: -O2 -g"

// A Python script of experiments/ or of src/lab/, by its path from the root; empty where there is none.
std::string_view python_source(std::string_view path);
std::string_view chapters_toml();
std::string_view labels_toml();
std::string_view catalog_csv();

}  // namespace fathom::lab
