#include "cli/doctor_text.h"

#include "machine/features.h"

namespace fathom::cli {

using namespace machine;

std::string size_text(int64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) return fmt::format("{:.4g} GiB", value / (1 << 30));
  if (bytes >= 1 << 20) return fmt::format("{:.4g} MiB", value / (1 << 20));
  return fmt::format("{:.4g} KiB", value / (1 << 10));
}

void section(std::string_view name) { line("\n{}", name); }

void fact(std::string_view name, std::string_view value) { line("  {:<20} {}", name, value); }

void folded(std::string_view mark, std::string_view sentence) {
  constexpr size_t kWidth = 96;
  std::string indent(mark);
  while (sentence.size() > kWidth) {
    size_t cut = sentence.rfind(' ', kWidth);
    if (cut == std::string_view::npos) break;
    line("{}{}", indent, sentence.substr(0, cut));
    sentence.remove_prefix(cut + 1);
    indent.assign(mark.size(), ' ');
  }
  line("{}{}", indent, sentence);
}

void print_features(FeatureKind wanted, std::string_view title) {
  section(title);
  for (const Feature feature : all_features()) {
    if (kind(feature) != wanted) continue;
    const std::optional<std::string> why_not = missing(feature);
    line("  {:<3} {:<23} {}", why_not ? "no" : "yes", to_string(feature), describe(feature));
    if (why_not) folded("        because ", *why_not);
  }
}

std::string number(double value, int width) {
  return fmt::format("{:{}.{}f}", value, width, value < 100 ? 2 : value < 1000 ? 1 : 0);
}

std::string cell(const Measured& m, double unit) {
  return fmt::format("{} [{}, {}] {}", number(m.median / unit, 8), number(m.lo / unit, 7),
                     number(m.hi / unit, 7), number(m.best / unit, 8));
}

void header(std::string_view unit, std::string_view first, std::string_view second) {
  line("\n  {:<24}  {}", unit,
       second.empty() ? std::string(first) : fmt::format("{:<{}}  {}", first, kCellNames.size(), second));
  line("  {:<24}  {}{}{}", "", kCellNames, second.empty() ? "" : "  ", second.empty() ? "" : kCellNames);
}

void row(std::string_view name, const Measured& one, const Measured* all, double unit) {
  line("  {:<24}  {}{}", name, cell(one, unit), all ? "  " + cell(*all, unit) : "");
}

void print_claims(const MeasurementScope& claims, std::string_view of) {
  section(fmt::format("A result from {} can claim:", of));
  for (const std::string& sentence : claims.can) folded("  + ", sentence);
  section("It cannot claim:");
  for (const std::string& sentence : claims.cannot) folded("  - ", sentence);
}

}  // namespace fathom::cli
