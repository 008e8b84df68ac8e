#include "profile/kernel_name.h"

#include <cxxabi.h>

#include <cctype>
#include <cstdlib>
#include <memory>

namespace fathom::profile {
namespace {

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? text.get() : symbol;
}

void remove_all(std::string& text, std::string_view part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at))
    text.erase(at, part.size());
}

// The parameter list is the last parenthesised group, which ends the name.
void remove_parameters(std::string& text) {
  if (text.empty() || text.back() != ')') return;
  int depth = 0;
  for (size_t i = text.size(); i-- > 0;) {
    if (text[i] == ')') ++depth;
    if (text[i] == '(' && --depth == 0) {
      if (i > 0) text.erase(i);
      return;
    }
  }
}

bool ends_with_digits(std::string_view text, std::string_view before) {
  size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[text.size() - 1 - digits])))
    ++digits;
  text.remove_suffix(digits);
  return digits > 0 && text.ends_with(before);
}

}  // namespace

std::string readable_kernel_name(const char* symbol) {
  if (!symbol) return "";
  std::string name = demangled(symbol);
  remove_all(name, "(anonymous namespace)::");
  remove_parameters(name);
  if (name.starts_with("void ")) name.erase(0, 5);  // demangled templates include the return type
  for (const std::string_view ours : {"fathom::lab::", "fathom::"}) remove_all(name, ours);
  return name;
}

std::string readable_api_name(std::string_view function) {
  for (bool more = true; more;) {
    more = false;
    for (const std::string_view suffix : {"_ptsz", "_ptds"})
      if (function.ends_with(suffix)) {
        function.remove_suffix(suffix.size());
        more = true;
      }
    if (ends_with_digits(function, "_v")) {
      const size_t version = function.rfind("_v");
      // "_v2" and "_v3" are parts of the driver's names; "_v7000" is a version of CUDA.
      if (function.size() - version > 4) {
        function.remove_suffix(function.size() - version);
        more = true;
      }
    }
  }
  return std::string(function);
}

}  // namespace fathom::profile
