#include "cli/doctor_text.h"

#include "cli/table.h"
#include "machine/features.h"

namespace fathom::cli {

using namespace machine;

std::string size_text(int64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) return fmt::format("{:.4g} GiB", value / (1 << 30));
  if (bytes >= 1 << 20) return fmt::format("{:.4g} MiB", value / (1 << 20));
  return fmt::format("{:.4g} KiB", value / (1 << 10));
}

void section(std::string_view name) { fmt::print("\n{}", wrapped(name)); }

void fact(std::string_view name, std::string_view value) { folded(fmt::format("  {:<20} ", name), value); }

void folded(std::string_view mark, std::string_view sentence) {
  fmt::print("{}", wrapped(sentence, text_columns(), mark));
}

void print_features(FeatureKind wanted, std::string_view title) {
  section(title);
  for (const Feature feature : all_features()) {
    if (kind(feature) != wanted) continue;
    const std::optional<std::string> why_not = missing(feature);
    folded(fmt::format("  {:<3} {:<23} ", why_not ? "no" : "yes", to_string(feature)), describe(feature));
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
  line("\n  {:<22}  {}", unit,
       second.empty() ? std::string(first) : fmt::format("{:<{}}  {}", first, kCellNames.size(), second));
  line("  {:<22}  {}{}{}", "", kCellNames, second.empty() ? "" : "  ", second.empty() ? "" : kCellNames);
}

void row(std::string_view name, const Measured& one, const Measured* all, double unit) {
  line("  {:<22}  {}{}", name, cell(one, unit), all ? "  " + cell(*all, unit) : "");
}

void print_claims(const MeasurementScope& claims, std::string_view of) {
  section(fmt::format("A result from {} can claim:", of));
  for (const std::string& sentence : claims.can) folded("  + ", sentence);
  section("It cannot claim:");
  for (const std::string& sentence : claims.cannot) folded("  - ", sentence);
}

}  // namespace fathom::cli
