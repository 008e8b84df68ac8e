// Charts as SVG text: scales with readable ticks, and a drawing of lines, bars, points, intervals, arrows and
// words with hover titles. No script. Colours are classes that chart_style() defines from custom properties,
// so one drawing serves light and dark screens and paper.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::report {

struct Range {
  double lo = 0, hi = 1;
};
// The range of the finite values (positive ones on a log axis), widened by `margin` of itself on both sides;
// never empty. Without any value: [0, 1], or [1, 10] on a log axis.
Range range_of(std::span<const double> values, bool log, double margin = 0.05);

// Where a value lies on the page.
struct Scale {
  Range range;
  double from = 0, to = 1;  // pixels of range.lo and range.hi; from > to on a y axis
  bool log = false;

  double at(double value) const;  // pixels; values beyond the range land on its end, never outside
  bool contains(double value) const { return value >= range.lo && value <= range.hi; }
};

// At most `most` (>= 2) round values inside the scale's range, ascending. Log scales get powers of ten when
// they span decades, 1-2-5 when they span one, and evenly spaced values when they span less.
std::vector<double> ticks(const Scale& scale, int most);
std::string tick_text(double value);  // 0.5, 20, 1k, 3M, 2G, 10T

// Estimated width in pixels at a font size: no font can be measured here.
enum class Weight { normal, bold };
double text_width(std::string_view text, double font_px, Weight weight = Weight::normal);
// Lines of at most `width` pixels, broken at spaces, at '_', '/' and '&' when a word is longer.
std::vector<std::string> wrap(std::string_view text, double width, double font_px);

struct Mark {
  std::string_view style;  // classes of chart_style()
  std::string title;       // shown on hover and read aloud; may be empty
};

enum class Anchor { start, middle, end };

struct Label {
  std::string_view style = "";
  Anchor anchor          = Anchor::start;
  double degrees         = 0;  // clockwise around (x, y)
};

struct Place {
  double x, y;
};

class Drawing {
 public:
  // `id` is unique on its page. `title` says what the chart is, `description` what it shows.
  Drawing(std::string id, double width, double height, std::string title, std::string description);

  void line(Place from, Place to, const Mark& mark);
  void polyline(std::span<const Place> places, const Mark& mark);
  void bar(Place corner, double width, double height, const Mark& mark);
  void circle(Place centre, double radius, const Mark& mark);
  void diamond(Place centre, double radius, const Mark& mark);
  void cross(Place centre, double radius, const Mark& mark);
  // Many small dots as one element: a strip of samples.
  void dots(std::span<const Place> places, const Mark& mark);
  void arrow(Place from, Place to, const Mark& mark);  // the head ends at `to`
  // A line from lo to hi at height y; an end beyond the scale is drawn as an arrow head at the edge.
  void interval(const Scale& x, double y, double lo, double hi, const Mark& mark);
  void text(Place at, std::string_view words, const Label& label = {});

  void x_axis(const Scale& x, double top, double bottom, std::string_view name, int most_ticks);
  void y_axis(const Scale& y, double left, double right, std::string_view name, int most_ticks);

  struct LegendItem {
    std::string name;
    std::string_view style;
    enum class Shape { circle, diamond, cross, line } shape = Shape::circle;
  };
  // One row of items from `at`, wrapped at `right`; returns the y below it.
  double legend(Place at, double right, std::span<const LegendItem> items);

  std::string embedded() const;    // for a page whose head holds chart_style()
  std::string standalone() const;  // a file of its own

 private:
  void element(std::string_view shape, const Mark& mark);
  std::string open(std::string_view extra) const;

  std::string id_, title_, description_;
  double width_, height_;
  std::string body_;
};

// CSS: the palette as custom properties for light, dark and print, and the classes of marks and labels.
std::string_view chart_style();

}  // namespace fathom::report
