// What this program was built from: hashes of every experiment's sources, the commit, and the two tables of
// experiments/ that it needs at run time. All compiled in (src/lab/source_tables.cmake), so that a bundle
// without sources still knows.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace fathom::lab {

// 16 hexadecimal digits (XXH3, 64 bits) of an experiment's sources: every .cpp, .h, .cu, .cuh file of the
// folder, by name and contents, and those of experiments/ and src/kernels/ that they include, with the
// kernels' implementations beside the header. Tests and notes do not count: they do not change a measurement.
// `folder` is relative to `root`: "experiments/ch07_memory_access/transpose_cpu".
std::string hash_sources(const std::filesystem::path& root, const std::string& folder);

// As of the build; empty for a folder it does not know.
std::string_view source_hash(std::string_view folder);

std::string_view build_commit();    // 12 digits; empty when it was not built in a git checkout
bool build_dirty();                 // tracked files differed from that commit
std::string_view build_compiler();  // "GNU 12.2.0"
std::string_view build_flags();     // "RelWithDebInfo: -O2 -g"

std::string_view chapters_toml();
std::string_view labels_toml();

}  // namespace fathom::lab
