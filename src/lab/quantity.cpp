#include "lab/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace fathom::lab {
namespace {

struct Unit {
  double scale;
  const char* name;
};

constexpr std::array kTime{Unit{1e9, "s"}, Unit{1e6, "ms"}, Unit{1e3, "µs"}, Unit{1, "ns"}};
constexpr std::array kBytesPerSecond{Unit{1e12, "TB/s"}, Unit{1e9, "GB/s"}, Unit{1e6, "MB/s"},
                                     Unit{1e3, "kB/s"}, Unit{1, "B/s"}};
constexpr std::array kFlopsPerSecond{Unit{1e15, "PFLOP/s"}, Unit{1e12, "TFLOP/s"}, Unit{1e9, "GFLOP/s"},
                                     Unit{1e6, "MFLOP/s"},  Unit{1e3, "kFLOP/s"},  Unit{1, "FLOP/s"}};

// Decimals that leave so many significant digits.
int decimals(double value, int significant) {
  if (value == 0) return 0;
  return std::clamp(significant - 1 - static_cast<int>(std::floor(std::log10(std::abs(value)))), 0, 9);
}

// Rounding first, so that 999.6 ns reads 1.00 µs and not 1000 ns.
double rounded(double value, int significant) {
  if (value == 0) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - (significant - 1));
  return std::round(value / unit) * unit;
}

template <size_t N>
const Unit& unit_of(double value, const std::array<Unit, N>& units) {
  const double magnitude = std::abs(rounded(value, 3));
  for (const Unit& unit : units)
    if (magnitude >= unit.scale * (1 - 1e-12)) return unit;
  return units.back();
}

template <size_t N>
std::string in_unit(double value, const std::array<Unit, N>& units) {
  if (!std::isfinite(value)) return std::string(kAbsent);
  const Unit& unit = unit_of(value, units);
  return digits_text(value / unit.scale) + " " + unit.name;
}

// With up to two more decimals than asked for where the ends would read the same.
std::string interval(double lo, double hi, int places) {
  if (!std::isfinite(lo) || !std::isfinite(hi)) return std::string(kAbsent);
  for (const int limit = places + 2; places < limit && hi > lo; ++places)
    if (fmt::format("{:.{}f}", lo, places) != fmt::format("{:.{}f}", hi, places)) break;
  return fmt::format("[{:.{}f}, {:.{}f}]", lo, places, hi, places);
}

int ratio_decimals(double ratio) { return ratio > 0.8 && ratio < 1.2 ? 3 : decimals(rounded(ratio, 3), 3); }

}  // namespace

std::string digits_text(double value, int significant) {
  if (!std::isfinite(value)) return std::string(kAbsent);
  const double shown     = rounded(value, significant);
  const double magnitude = std::abs(shown);
  if (magnitude != 0 && (magnitude < 1e-6 || magnitude >= 1e9))
    return fmt::format("{:.{}e}", value, significant - 1);
  return fmt::format("{:.{}f}", shown, decimals(shown, significant));
}

std::string time_text(double ns) { return in_unit(ns, kTime); }
std::string bytes_per_s_text(double rate) { return in_unit(rate, kBytesPerSecond); }
std::string flops_per_s_text(double rate) { return in_unit(rate, kFlopsPerSecond); }

std::string count_text(int64_t count) {
  std::string text = std::to_string(count);
  const int first  = count < 0 ? 1 : 0;
  for (int i = static_cast<int>(text.size()) - 3; i > first; i -= 3)
    text.insert(static_cast<size_t>(i), 1, ',');
  return text;
}

std::string share_text(double share) {
  return std::isfinite(share) ? digits_text(share * 100) + " %" : std::string(kAbsent);
}

std::string ratio_text(double ratio) {
  if (!std::isfinite(ratio)) return std::string(kAbsent);
  return fmt::format("{:.{}f}×", ratio, ratio_decimals(ratio));
}

std::string time_interval_text(double median, double lo, double hi) {
  if (!std::isfinite(median)) return std::string(kAbsent);
  const double scale = unit_of(median, kTime).scale;
  return interval(lo / scale, hi / scale, decimals(rounded(median / scale, 3), 3));
}

std::string ratio_interval_text(double median, double lo, double hi) {
  if (!std::isfinite(median)) return std::string(kAbsent);
  return interval(lo, hi, ratio_decimals(median));
}

std::string error_text(double error) {
  if (!std::isfinite(error)) return std::string(kAbsent);
  if (error == 0) return "0";
  const std::string text = fmt::format("{:.1e}", error);
  const size_t e         = text.find('e');
  return fmt::format("{}e{}", text.substr(0, e), std::stoi(text.substr(e + 1)));
}

std::string escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t')
          out += "\xEF\xBF\xBD";
        else
          out += c;
    }
  }
  return out;
}

}  // namespace fathom::lab
