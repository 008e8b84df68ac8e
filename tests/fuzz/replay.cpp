// Runs a fuzz target without a fuzzer: every file of its corpus, and reproducible mutations of them.
//   replay_<target> CORPUS_DIR MUTATIONS
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kLongest = 1 << 16;

// Strings that parsers often handle wrongly.
constexpr std::string_view kMorsels[] = {
    "0",
    "-1",
    "1e999",
    "18446744073709551615",
    "9223372036854775808",
    "-0",
    "0.5",
    "null",
    "true",
    "\"\"",
    "[]",
    "{}",
    "[[[[[[[[",
    "\"\\ud800\"",
    "\xFF",
    "\xF0\x9F",
    "\xED\xA0\x80",
    ",",
    ":",
    "\"",
    "\\",
    "../",
};

class Mutator {
 public:
  Mutator(const std::vector<std::string>& corpus, uint64_t seed) : corpus_(corpus), random_(seed) {}

  std::string mutated(std::string input) {
    for (size_t steps = 1 + below(4); steps > 0; --steps) step(input);
    input.resize(std::min(input.size(), kLongest));
    return input;
  }

 private:
  size_t below(size_t n) { return n == 0 ? 0 : random_() % n; }

  // A short piece of `text`, or a long one now and then.
  std::string piece_of(const std::string& text) {
    const size_t at = below(text.size()), most = below(8) == 0 ? text.size() : 16;
    return text.substr(at, 1 + below(most));
  }

  void step(std::string& s) {
    const size_t at = below(s.size() + 1);
    switch (below(7)) {
      case 0:
        if (at < s.size()) s[at] = static_cast<char>(s[at] ^ 1 << below(8));
        break;
      case 1:
        if (at < s.size()) s[at] = static_cast<char>(below(256));
        break;
      case 2:
        s.erase(at, 1 + below(below(8) == 0 ? s.size() : 8));
        break;
      case 3:
        s.insert(at, kMorsels[below(std::size(kMorsels))]);
        break;
      case 4:
        s.insert(at, piece_of(corpus_[below(corpus_.size())]));
        break;
      case 5:
        s.insert(at, piece_of(s));
        break;
      case 6:
        replace_number(s, at);
        break;
    }
  }

  // Replaces the next run of digits by another number.
  void replace_number(std::string& s, size_t at) {
    constexpr std::string_view kDigits = "0123456789";
    const size_t begin                 = s.find_first_of(kDigits, at);
    if (begin == std::string::npos) return;
    const size_t end = std::min(s.find_first_not_of(kDigits, begin), s.size());
    s.replace(begin, end - begin, std::to_string(random_() >> below(64)));
  }

  const std::vector<std::string>& corpus_;
  std::mt19937_64 random_;
};

void run(const std::string& input) {
  // Copy to the heap with no spare byte, so that a sanitizer sees every read beyond the end.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s CORPUS_DIR MUTATIONS\n", argv[0]);
    return 5;
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(argv[1])) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> corpus;
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  const uint64_t mutations = std::strtoull(argv[2], nullptr, 10);
  if (corpus.empty() || mutations == 0) {
    std::fprintf(stderr, "%s: no corpus, or no mutations: that would test nothing\n", argv[0]);
    return 5;
  }

  uint64_t number = 0;
  try {
    run("");
    for (const std::string& input : corpus) run(input), ++number;
    for (; number < corpus.size() + mutations; ++number)
      run(Mutator(corpus, number).mutated(corpus[number % corpus.size()]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "input %llu, %s%s: %s\n", static_cast<unsigned long long>(number),
                 number < corpus.size() ? "" : "a mutation of ", files[number % files.size()].c_str(),
                 error.what());
    return 1;
  }
  std::printf("%zu files and %llu mutations\n", corpus.size(), static_cast<unsigned long long>(mutations));
  return 0;
}
