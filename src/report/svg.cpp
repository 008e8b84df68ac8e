#include "report/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/quantity.h"

namespace fathom::report {

using namespace lab;

namespace {

constexpr double kLabelFont = 11;  // pixels, of labels and ticks

// Pixels with one decimal, which is finer than anyone sees, and no trailing zero.
std::string px(double value) {
  const double shown = std::isfinite(value) ? std::round(value * 10) / 10 : 0;
  return shown == std::trunc(shown) ? fmt::format("{:.0f}", shown + 0.0) : fmt::format("{:.1f}", shown);
}

// The smallest of 1, 2, 5 times a power of ten that is at least `step`.
double round_step(double step) {
  const double power = std::pow(10.0, std::floor(std::log10(step)));
  for (const double mantissa : {1.0, 2.0, 5.0})
    if (mantissa * power >= step * (1 - 1e-9)) return mantissa * power;
  return 10 * power;
}

std::vector<double> even_ticks(const Range& range, int most) {
  const double step = round_step((range.hi - range.lo) / (most - 1));
  std::vector<double> out;
  // By index, so that rounding errors do not add up.
  for (double i = std::ceil(range.lo / step - 1e-9); i * step <= range.hi + step * 1e-9; ++i)
    out.push_back(i * step + 0.0);
  return out;
}

std::vector<double> decade_ticks(const Range& range, std::span<const double> mantissas, int every) {
  std::vector<double> out;
  const int first = static_cast<int>(std::floor(std::log10(range.lo) + 1e-9));
  const int last  = static_cast<int>(std::floor(std::log10(range.hi) + 1e-9));
  for (int e = first; e <= last; ++e) {
    if (every > 1 && e % every != 0) continue;
    for (const double mantissa : mantissas) {
      const double value = mantissa * std::pow(10.0, e);
      if (value >= range.lo * (1 - 1e-9) && value <= range.hi * (1 + 1e-9)) out.push_back(value);
    }
  }
  return out;
}

std::vector<double> log_ticks(const Range& range, int most) {
  constexpr double kOne[] = {1}, kThree[] = {1, 2, 5};
  const double decades = std::log10(range.hi / range.lo);
  if (decades >= 0.5) {
    auto fine = decade_ticks(range, kThree, 1);
    if (fine.size() >= 3 && static_cast<int>(fine.size()) <= most) return fine;
    if (fine.size() >= 3)
      for (int every = 1;; ++every) {
        auto coarse = decade_ticks(range, kOne, every);
        if (static_cast<int>(coarse.size()) > most) continue;
        if (coarse.size() >= 2) return coarse;
        break;
      }
  }
  return even_ticks(range, most);
}

const char* anchor_name(Anchor anchor) {
  switch (anchor) {
    case Anchor::start:
      return "start";
    case Anchor::middle:
      return "middle";
    case Anchor::end:
      return "end";
  }
  return "start";
}

int code_points(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

Range range_of(std::span<const double> values, bool log, double margin) {
  bool any  = false;
  double lo = 0, hi = 0;
  for (const double value : values) {
    if (!std::isfinite(value) || (log && value <= 0)) continue;
    lo  = any ? std::min(lo, value) : value;
    hi  = any ? std::max(hi, value) : value;
    any = true;
  }
  if (!any) return log ? Range{1, 10} : Range{0, 1};
  if (log) {
    const double factor = hi > lo ? std::pow(hi / lo, margin) : 1.1;
    return {lo / factor, hi * factor};
  }
  const double extra = hi > lo ? margin * (hi - lo) : std::max(std::abs(hi) * 0.1, 1e-9);
  return {lo - extra, hi + extra};
}

double Scale::at(double value) const {
  double share = 0;
  if (log)
    share = value > 0 ? std::log(value / range.lo) / std::log(range.hi / range.lo) : 0;
  else
    share = (value - range.lo) / (range.hi - range.lo);
  if (std::isnan(share)) share = 0;
  return from + std::clamp(share, 0.0, 1.0) * (to - from);
}

std::vector<double> ticks(const Scale& scale, int most) {
  return scale.log ? log_ticks(scale.range, most) : even_ticks(scale.range, most);
}

std::string tick_text(double value) {
  if (!std::isfinite(value)) return std::string(kAbsent);
  constexpr struct {
    double scale;
    const char* suffix;
  } kSuffixes[] = {{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [scale, suffix] : kSuffixes)
    if (std::abs(value) >= scale * (1 - 1e-9)) return fmt::format("{:.4g}{}", value / scale, suffix);
  return fmt::format("{:.4g}", std::abs(value) < 1e-12 ? 0.0 : value);
}

double text_width(std::string_view text, double font_px, Weight weight) {
  return (weight == Weight::bold ? 0.67 : 0.58) * font_px * code_points(text);
}

std::vector<std::string> wrap(std::string_view text, double width, double font_px) {
  const int room = std::max(1, static_cast<int>(width / (0.58 * font_px)));
  std::vector<std::string> lines;
  std::string line;
  int used            = 0;
  const auto new_line = [&] {
    while (!line.empty() && line.back() == ' ') line.pop_back();
    if (!line.empty()) lines.push_back(line);
    line.clear();
    used = 0;
  };
  // A piece ends after a space, or after a character at which an identifier may be broken.
  for (size_t begin = 0; begin < text.size();) {
    size_t end             = text.find_first_of(" _/&", begin);
    end                    = end == std::string_view::npos ? text.size() : end + 1;
    std::string_view piece = text.substr(begin, end - begin);
    begin                  = end;
    const int length       = code_points(piece) - (piece.back() == ' ' ? 1 : 0);
    if (used > 0 && used + length > room) new_line();
    for (const char c : piece) {
      const bool starts = (c & 0xC0) != 0x80;
      if (starts && used == room && c != ' ') new_line();
      line += c;
      used += starts ? 1 : 0;
    }
  }
  new_line();
  return lines;
}

Drawing::Drawing(std::string id, double width, double height, std::string title, std::string description)
    : id_(std::move(id)),
      title_(std::move(title)),
      description_(std::move(description)),
      width_(width),
      height_(height) {}

// `shape` is "circle cx='1' ...": the element without its brackets.
void Drawing::element(std::string_view shape, const Mark& mark) {
  const std::string_view name = shape.substr(0, shape.find(' '));
  body_ += fmt::format("<{} class=\"{}\"", shape, mark.style);
  if (mark.title.empty())
    body_ += "/>";
  else
    body_ += fmt::format("><title>{}</title></{}>", escape(mark.title), name);
  body_ += '\n';
}

void Drawing::line(Place from, Place to, const Mark& mark) {
  element(
      fmt::format("line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"", px(from.x), px(from.y), px(to.x), px(to.y)),
      mark);
}

void Drawing::polyline(std::span<const Place> places, const Mark& mark) {
  std::string points;
  for (const Place& p : places) points += fmt::format("{}{},{}", points.empty() ? "" : " ", px(p.x), px(p.y));
  element(fmt::format("polyline points=\"{}\" fill=\"none\"", points), mark);
}

void Drawing::bar(Place corner, double width, double height, const Mark& mark) {
  element(fmt::format("rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", px(corner.x), px(corner.y),
                      px(std::max(width, 0.0)), px(std::max(height, 0.0))),
          mark);
}

void Drawing::circle(Place centre, double radius, const Mark& mark) {
  element(fmt::format("circle cx=\"{}\" cy=\"{}\" r=\"{}\"", px(centre.x), px(centre.y), px(radius)), mark);
}

void Drawing::diamond(Place centre, double radius, const Mark& mark) {
  const auto& [x, y] = centre;
  element(fmt::format("path d=\"M{} {}L{} {}L{} {}L{} {}Z\"", px(x - radius), px(y), px(x), px(y - radius),
                      px(x + radius), px(y), px(x), px(y + radius)),
          mark);
}

void Drawing::cross(Place centre, double radius, const Mark& mark) {
  const auto& [x, y] = centre;
  element(fmt::format("path d=\"M{} {}L{} {}M{} {}L{} {}\"", px(x - radius), px(y - radius), px(x + radius),
                      px(y + radius), px(x - radius), px(y + radius), px(x + radius), px(y - radius)),
          mark);
}

void Drawing::dots(std::span<const Place> places, const Mark& mark) {
  // A stroke of hardly any length with round caps is a dot of the stroke's width.
  std::string path;
  for (const Place& p : places) path += fmt::format("M{} {}h.1", px(p.x), px(p.y));
  element(fmt::format("path d=\"{}\"", path), mark);
}

void Drawing::arrow(Place from, Place to, const Mark& mark) {
  constexpr double kHead = 7, kHalf = 3.2;
  const double dx = to.x - from.x, dy = to.y - from.y, length = std::hypot(dx, dy);
  if (length < 1) return;
  const double ux = dx / length, uy = dy / length, head = std::min(kHead, length);
  const Place neck{to.x - ux * head, to.y - uy * head};
  element(fmt::format("path d=\"M{} {}L{} {}M{} {}L{} {}L{} {}Z\"", px(from.x), px(from.y), px(neck.x),
                      px(neck.y), px(to.x), px(to.y), px(neck.x - uy * kHalf), px(neck.y + ux * kHalf),
                      px(neck.x + uy * kHalf), px(neck.y - ux * kHalf)),
          mark);
}

void Drawing::interval(const Scale& x, double y, double lo, double hi, const Mark& mark) {
  constexpr double kCap = 4, kHead = 6;
  const double left = x.at(lo), right = x.at(hi);
  // At an end inside the scale a cap, at one beyond it a head that points on.
  const auto end = [&](double at, bool inside, double outward) {
    return inside ? fmt::format("M{} {}v{}", px(at), px(y - kCap), px(2 * kCap))
                  : fmt::format("M{} {}L{} {}L{} {}", px(at - outward * kHead), px(y - kCap), px(at), px(y),
                                px(at - outward * kHead), px(y + kCap));
  };
  element(fmt::format("path d=\"M{} {}H{}{}{}\" fill=\"none\"", px(left), px(y), px(right),
                      end(left, lo >= x.range.lo, -1), end(right, hi <= x.range.hi, 1)),
          mark);
}

void Drawing::text(Place at, std::string_view words, const Label& label) {
  body_ += fmt::format("<text x=\"{}\" y=\"{}\"", px(at.x), px(at.y));
  if (label.anchor != Anchor::start) body_ += fmt::format(" text-anchor=\"{}\"", anchor_name(label.anchor));
  if (label.degrees != 0)
    body_ += fmt::format(" transform=\"rotate({} {} {})\"", px(label.degrees), px(at.x), px(at.y));
  if (!label.style.empty()) body_ += fmt::format(" class=\"{}\"", label.style);
  body_ += fmt::format(">{}</text>\n", escape(words));
}

void Drawing::x_axis(const Scale& x, double top, double bottom, std::string_view name, int most_ticks) {
  for (const double tick : ticks(x, most_ticks)) {
    line({x.at(tick), top}, {x.at(tick), bottom}, {"grid", ""});
    text({x.at(tick), bottom + 14}, tick_text(tick), {"tick", Anchor::middle});
  }
  line({x.from, bottom}, {x.to, bottom}, {"axis", ""});
  if (!name.empty()) text({(x.from + x.to) / 2, bottom + 31}, name, {"name", Anchor::middle});
}

void Drawing::y_axis(const Scale& y, double left, double right, std::string_view name, int most_ticks) {
  for (const double tick : ticks(y, most_ticks)) {
    line({left, y.at(tick)}, {right, y.at(tick)}, {"grid", ""});
    text({left - 6, y.at(tick) + 4}, tick_text(tick), {"tick", Anchor::end});
  }
  line({left, y.from}, {left, y.to}, {"axis", ""});
  if (!name.empty())
    text({left - 44, (y.from + y.to) / 2}, name, {.style = "name", .anchor = Anchor::middle, .degrees = -90});
}

double Drawing::legend(Place at, double right, std::span<const LegendItem> items) {
  Place p = at;
  for (const LegendItem& item : items) {
    const double width = 16 + text_width(item.name, kLabelFont) + 14;
    if (p.x > at.x && p.x + width - 14 > right) p = {at.x, p.y + 17};
    const Place mark{p.x + 5, p.y - 4};
    switch (item.shape) {
      case LegendItem::Shape::circle:
        circle(mark, 4, {item.style, ""});
        break;
      case LegendItem::Shape::diamond:
        diamond(mark, 4.5, {item.style, ""});
        break;
      case LegendItem::Shape::cross:
        cross(mark, 4, {item.style, ""});
        break;
      case LegendItem::Shape::line:
        line({p.x - 2, mark.y}, {p.x + 12, mark.y}, {item.style, ""});
        break;
    }
    text({p.x + 16, p.y}, item.name, {"key"});
    p.x += width;
  }
  return p.y + 17;
}

std::string Drawing::open(std::string_view extra) const {
  return fmt::format(
      "<svg class=\"chart\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
      "aria-labelledby=\"{2}-title {2}-desc\"{3}>\n<title id=\"{2}-title\">{4}</title>\n<desc "
      "id=\"{2}-desc\">{5}</desc>\n",
      px(width_), px(height_), escape(id_), extra, escape(title_), escape(description_));
}

std::string Drawing::embedded() const { return open("") + body_ + "</svg>\n"; }

std::string Drawing::standalone() const {
  return open(" xmlns=\"http://www.w3.org/2000/svg\"") + fmt::format("<style>{}</style>\n", chart_style()) +
         body_ + "</svg>\n";
}

std::string_view chart_style() {
  return R"css(
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1b1f24; --muted: #57606a; --rule: #d5dae0; --faint: #eceff2; --tint: #f5f7f9;
  --accent: #1f5fa8; --good: #17703f; --bad: #b02a21; --doubt: #855300; --void: #7636a8;
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif;
  --mono: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", "DejaVu Sans Mono", monospace;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --ink: #e4e7ea; --muted: #9ea8b2; --rule: #3a4149; --faint: #262b31; --tint: #1c2024;
    --accent: #7db4f0; --good: #62c792; --bad: #f28f85; --doubt: #e0b45c; --void: #c9a0ec;
  }
}
.chart { font: 11px var(--sans); font-variant-numeric: tabular-nums; color: var(--ink); background: var(--paper); }
.chart text { fill: var(--ink); }
.chart .tick, .chart .name, .chart .key, .chart .quiet { fill: var(--muted); }
.chart .label { font-weight: 600; }
.chart .code { font-family: var(--mono); }
.chart .halo { paint-order: stroke; stroke: var(--paper); stroke-width: 3.5px; stroke-linejoin: round; }
.chart .grid { stroke: var(--faint); }
.chart .axis { stroke: var(--muted); }
.chart .band { fill: var(--rule); fill-opacity: .55; }
.chart .lane { fill: var(--tint); }
.chart .unity { stroke: var(--muted); stroke-dasharray: 3 3; }
.chart .roof { stroke: var(--ink); stroke-width: 1.6; fill: none; }
.chart .roof-compute { stroke: var(--bad); stroke-width: 1.6; fill: none; }
.chart .best { fill: var(--accent); stroke: var(--accent); stroke-width: 1.6; }
.chart .baseline { fill: var(--paper); stroke: var(--ink); stroke-width: 1.6; }
.chart .other { fill: var(--muted); stroke: none; fill-opacity: .7; }
.chart .library { fill: var(--paper); stroke: var(--doubt); stroke-width: 1.6; }
.chart .engine { fill: var(--paper); stroke: var(--accent); stroke-width: 1.6; }
.chart .leap { stroke: var(--accent); fill: var(--accent); stroke-width: 1.2; }
.chart .tie { stroke: var(--muted); stroke-width: .8; }
.chart .whisker { stroke: var(--accent); stroke-width: 1.2; fill: none; }
.chart .sample { stroke: var(--accent); stroke-width: 2.6; stroke-linecap: round; stroke-opacity: .75; fill: none; }
.chart .beyond { stroke: var(--doubt); stroke-width: 3.4; stroke-linecap: round; fill: none; }
.chart .share { fill: var(--accent); }
.chart .quartile { fill: var(--rule); }
.chart .good { fill: var(--good); stroke: var(--good); stroke-width: 1.6; }
.chart .bad { fill: var(--bad); stroke: var(--bad); stroke-width: 1.6; }
.chart .same { fill: var(--ink); stroke: var(--ink); stroke-width: 1.6; }
.chart .doubt { fill: var(--doubt); stroke: var(--doubt); stroke-width: 1.6; }
.chart .void { fill: none; stroke: var(--void); stroke-width: 2; }
.chart text.good { fill: var(--good); stroke: none; }
.chart text.bad { fill: var(--bad); stroke: none; }
.chart text.same { fill: var(--ink); stroke: none; }
.chart text.doubt { fill: var(--doubt); stroke: none; }
.chart text.void { fill: var(--void); stroke: none; }
.chart text.halo { stroke: var(--paper); }
@media print { .chart { background: none; } .chart * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
)css";
}

}  // namespace fathom::report
