// For programs that write a committed file from a model: PROGRAM FILE [--check].
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "core/atomic_file.h"

namespace fathom {

// Writes `text` to FILE, or with --check fails if FILE is another text. The exit code of `program`.
inline int write_or_check(int argc, char** argv, const char* program, const std::string& text) {
  const bool check = argc == 3 && std::strcmp(argv[2], "--check") == 0;
  if (argc != 2 && !check) {
    fmt::print(stderr, "usage: {} FILE [--check]\n", program);
    return 5;
  }
  if (!check) {
    write_file_atomically(argv[1], text);
    return 0;
  }
  std::stringstream contents;
  contents << std::ifstream(argv[1]).rdbuf();
  if (contents.str() == text) return 0;
  fmt::print(stderr, "{}: not what the model gives; run {} {}\n", argv[1], program, argv[1]);
  return 1;
}

}  // namespace fathom
