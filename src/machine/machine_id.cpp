#include "machine/machine_id.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <vector>

#include "core/expect.h"
#include "machine/gpu.h"

namespace fathom::machine {
namespace {

bool safe_in_file_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '_' || c == '-';
  });
}

// Words that do not distinguish machines.
bool says_nothing(const std::string& word) {
  static const std::vector<std::string> kNoise = {"amd",       "intel", "r",      "tm", "cpu",
                                                  "processor", "core",  "with",   "at", "nvidia",
                                                  "geforce",   "tesla", "quadro", "gpu"};
  return std::find(kNoise.begin(), kNoise.end(), word) != kNoise.end() || word.ends_with("ghz") ||
         word.ends_with("-core");
}

std::vector<std::string> words_of(std::string name) {
  for (char& c : name) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = ' ';
  }
  std::vector<std::string> words;
  std::istringstream stream(name);
  for (std::string word; stream >> word;)
    if (!says_nothing(word) && word != "-") words.push_back(word);
  return words;
}

bool has_digit(const std::string& word) { return std::any_of(word.begin(), word.end(), ::isdigit); }

std::optional<std::string> chosen_id() {
  const char* chosen = std::getenv("FATHOM_MACHINE");
  if (!chosen || !*chosen) return std::nullopt;
  FATHOM_EXPECT(
      safe_in_file_name(chosen),
      fmt::format("FATHOM_MACHINE={}: use letters, digits, '.', '_' and '-' only, not '.' first", chosen));
  return chosen;
}

}  // namespace

std::string machine_id() {
  if (const std::optional<std::string> chosen = chosen_id()) return *chosen;
  return machine_slug(topology());
}

std::string gpu_machine_id(DeviceId device) {
  if (const std::optional<std::string> chosen = chosen_id()) return *chosen;
  const GpuFacts* facts = gpu(device);
  return facts ? gpu_slug(facts->name) : machine_slug(topology());
}

std::string gpu_slug(const std::string& name) {
  const std::vector<std::string> words = words_of(name);
  return words.empty() ? "gpu" : fmt::format("{}", fmt::join(words, "-"));
}

std::string machine_slug(const Topology& machine) {
  std::vector<std::string> words = words_of(machine.cpu.model_name);
  if (words.empty()) words.push_back("cpu");
  if (std::none_of(words.begin(), words.end(), has_digit) && !machine.microarchitecture.empty())
    words.push_back(machine.microarchitecture);
  return fmt::format("{}-{}c", fmt::join(words, "-"), machine.cores);
}

std::string machine_identity(const Topology& machine, const Isolation& isolation, int version) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  std::string facts     = fmt::format(
          "{}|{}|{}|{}|{}|{}|{:.0f}|{}|{}|{}", machine.cpu.vendor, machine.cpu.model_name, machine.cpu.family,
          machine.cpu.model, machine.cores, machine.threads, static_cast<double>(machine.memory_bytes) / kGiB,
          machine.kernel.substr(0, machine.kernel.find(' ')),
      isolation.virtual_machine ? "vm " + isolation.hypervisor : "metal", version);
  for (const CpuCache& cache : machine.caches)
    facts += fmt::format("|{} {} {} {}", cache.level, cache.kind, cache.bytes, cache.instances);

  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, 64 bits
  for (const unsigned char byte : facts) hash = (hash ^ byte) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

}  // namespace fathom::machine
