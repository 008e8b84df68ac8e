#include "report/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "lab/quantity.h"
#include "report/highlights.h"
#include "report/svg.h"

namespace fathom::report {

using namespace lab;

namespace {

// Where a roofline is drawn, in pixels.
struct PlotFrame {
  double width, height;
  double left, right, top, bottom;  // of the plot itself
};
constexpr PlotFrame kWhole{760, 500, 64, 746, 16, 424};
constexpr PlotFrame kPlaceFrame{356, 250, 58, 346, 12, 206};
constexpr double kFont = 11;

bool positive(double value) { return std::isfinite(value) && value > 0; }

template <class Roof>
std::vector<Roof> descending(std::vector<Roof> roofs, double Roof::*rate) {
  std::erase_if(roofs, [&](const Roof& roof) { return !positive(roof.*rate); });
  std::stable_sort(roofs.begin(), roofs.end(),
                   [&](const Roof& a, const Roof& b) { return a.*rate > b.*rate; });
  return roofs;
}

// The area of a mark or a line of text: a segment and everything within `radius` of it.
struct Capsule {
  Place a, b;
  double radius = 0;
};

double distance(Place p, Place a, Place b) {
  const double dx = b.x - a.x, dy = b.y - a.y, square = dx * dx + dy * dy;
  const double t = square > 0 ? std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / square, 0.0, 1.0) : 0;
  return std::hypot(p.x - a.x - t * dx, p.y - a.y - t * dy);
}

bool overlap(const Capsule& p, const Capsule& q) {
  const auto side = [](Place a, Place b, Place c) {
    return (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x);
  };
  if (side(p.a, p.b, q.a) * side(p.a, p.b, q.b) < 0 && side(q.a, q.b, p.a) * side(q.a, q.b, p.b) < 0)
    return true;
  return std::min({distance(p.a, q.a, q.b), distance(p.b, q.a, q.b), distance(q.a, p.a, p.b),
                   distance(q.b, p.a, p.b)}) < p.radius + q.radius;
}

// Where a text may start, and which of its ends is fixed if its width differs from the estimate.
struct Candidate {
  Place start;
  Anchor anchor = Anchor::start;
};

// Puts words where they cover no other words or marks, and if possible no line either.
class Labels {
 public:
  Labels(Drawing& drawing, const PlotFrame& frame) : drawing_(drawing), frame_(frame) {}

  void mark(Place at) { marks_.push_back({at, at, 5}); }
  void line(Place a, Place b) { lines_.push_back({a, b, 1}); }

  // Tries the candidate starts of the text in turn; returns the one taken.
  std::optional<Place> put(std::string_view words, std::span<const Candidate> candidates,
                           std::string_view style, Weight weight, double degrees = 0) {
    for (const bool over_lines : {false, true})
      for (const auto& [at, anchor] : candidates) {
        const double width = text_width(words, kFont, weight);
        const Capsule text = covered(at, width, degrees);
        if (!inside(text.a) || !inside(text.b)) continue;
        const auto hits = [&](const Capsule& taken) { return overlap(text, taken); };
        if (std::any_of(marks_.begin(), marks_.end(), hits)) continue;
        if (!over_lines && std::any_of(lines_.begin(), lines_.end(), hits)) continue;
        marks_.push_back(text);
        const double fixed = anchor == Anchor::start ? 0 : anchor == Anchor::end ? width : width / 2;
        drawing_.text({at.x + fixed, at.y}, words, {.style = style, .anchor = anchor, .degrees = degrees});
        return at;
      }
    return std::nullopt;
  }

 private:
  // Along the middle of the letters, whose feet are on the line from `at`.
  static Capsule covered(Place at, double width, double degrees) {
    constexpr double kMiddle = 4, kHalf = 6;
    const double angle = degrees * M_PI / 180;
    const Place a{at.x + kMiddle * std::sin(angle), at.y - kMiddle * std::cos(angle)};
    return {a, {a.x + width * std::cos(angle), a.y + width * std::sin(angle)}, kHalf};
  }
  bool inside(Place p) const {
    return p.x >= frame_.left + 2 && p.x <= frame_.right + 2 && p.y >= frame_.top - 8 &&
           p.y <= frame_.bottom - 6;
  }

  Drawing& drawing_;
  const PlotFrame& frame_;
  std::vector<Capsule> marks_, lines_;
};

struct Plane {
  const PlotFrame& frame;
  Scale x, y;
  Place at(double flops_per_byte, double flops_per_s) const {
    return {x.at(flops_per_byte), y.at(flops_per_s)};
  }
};

Plane plane_of(const PlotFrame& frame, const std::vector<MemoryRoof>& memory,
               const std::vector<ComputeRoof>& compute, const std::vector<RooflinePoint>& points) {
  std::vector<double> xs, ys;
  for (const RooflinePoint& p : points) {
    xs.push_back(p.flops_per_byte);
    ys.insert(ys.end(), {p.flops_per_s, p.lo, p.hi});
  }
  // The ridge point, where memory and compute roofs meet, is always in view.
  for (const ComputeRoof& c : compute)
    if (!memory.empty()) {
      xs.push_back(c.flops_per_s / memory.front().bytes_per_s);
      xs.push_back(c.flops_per_s / memory.back().bytes_per_s);
    }
  Range x = range_of(xs, true, 0);
  x       = {x.lo / 2.5, x.hi * 3.5};
  for (const ComputeRoof& c : compute) ys.push_back(c.flops_per_s);
  if (!memory.empty()) ys.push_back(memory.back().bytes_per_s * x.lo * 2);
  Range y = range_of(ys, true, 0);
  y       = {y.lo / 1.6, y.hi * 1.9};
  return {.frame = frame, .x = {x, frame.left, frame.right, true}, .y = {y, frame.bottom, frame.top, true}};
}

struct RoofLine {
  std::string words;
  Place from, to;
};

// From the left or lower edge of the plot up to the highest compute roof.
std::vector<RoofLine> memory_lines(const Plane& plane, const std::vector<MemoryRoof>& memory,
                                   const std::vector<ComputeRoof>& compute) {
  std::vector<RoofLine> lines;
  const double top = compute.empty() ? plane.y.range.hi : compute.front().flops_per_s;
  for (const MemoryRoof& roof : memory) {
    const double start = std::max(plane.x.range.lo, plane.y.range.lo / roof.bytes_per_s);
    const double end   = std::min(plane.x.range.hi, top / roof.bytes_per_s);
    if (end > start)
      lines.push_back({fmt::format("{}  {}", roof.name, bytes_per_s_text(roof.bytes_per_s)),
                       plane.at(start, start * roof.bytes_per_s), plane.at(end, end * roof.bytes_per_s)});
  }
  return lines;
}

// From the steepest memory roof to the right edge.
std::vector<RoofLine> compute_lines(const Plane& plane, const std::vector<MemoryRoof>& memory,
                                    const std::vector<ComputeRoof>& compute) {
  std::vector<RoofLine> lines;
  for (const ComputeRoof& roof : compute) {
    const double ridge = memory.empty()
                             ? plane.x.range.lo
                             : std::max(plane.x.range.lo, roof.flops_per_s / memory.front().bytes_per_s);
    lines.push_back({fmt::format("{}  {}", roof.name, flops_per_s_text(roof.flops_per_s)),
                     plane.at(ridge, roof.flops_per_s), plane.at(plane.x.range.hi, roof.flops_per_s)});
  }
  return lines;
}

void name_roofs(Labels& labels, const PlotFrame& frame, const std::vector<RoofLine>& memory,
                const std::vector<RoofLine>& compute) {
  for (const auto& [words, from, to] : memory) {
    const double length = std::hypot(to.x - from.x, to.y - from.y);
    const double ux = (to.x - from.x) / length, uy = (to.y - from.y) / length;
    std::vector<Candidate> along;
    for (const double off : {5.0, -13.0})  // above the line, below it
      for (double d = 10; d < length - 30; d += 10)
        along.push_back({{from.x + d * ux + off * uy, from.y + d * uy - off * ux}});
    labels.put(words, along, "halo", Weight::normal, std::atan2(uy, ux) * 180 / M_PI);
  }
  for (const auto& [words, from, to] : compute) {
    std::vector<Candidate> along;
    for (double x = frame.right - text_width(words, kFont); x > frame.left; x -= 20)
      for (const double y : {to.y - 5, to.y + 13}) along.push_back({{x, y}});
    labels.put(words, along, "halo bad", Weight::normal);
  }
}

std::string point_title(const RooflinePoint& p) {
  std::string title =
      fmt::format("{}{}{}/{}: {} at {} flop/byte", p.experiment, p.at.empty() ? "" : " ", p.at, p.variant,
                  flops_per_s_text(p.flops_per_s), digits_text(p.flops_per_byte));
  if (p.attainable) title += fmt::format(", {} of the top roof", share_text(p.flops_per_s / *p.attainable));
  if (p.invalid) title += "; INVALID";
  return title;
}

const char* role_name(RooflinePoint::Role role) {
  switch (role) {
    case RooflinePoint::Role::baseline:
      return "baseline";
    case RooflinePoint::Role::best:
      return "best";
    case RooflinePoint::Role::other:
      return "other";
    case RooflinePoint::Role::library:
      return "library";
    case RooflinePoint::Role::engine:
      return "engine";
  }
  return "other";
}

void draw_point(Drawing& drawing, const Plane& plane, const RooflinePoint& p) {
  const Place at          = plane.at(p.flops_per_byte, p.flops_per_s);
  const std::string title = point_title(p);
  if (p.invalid) return drawing.cross(at, 4.5, {"void", title});
  switch (p.role) {
    case RooflinePoint::Role::baseline:
      return drawing.circle(at, 4, {"baseline", title});
    case RooflinePoint::Role::other:
      return drawing.circle(at, 2.6, {"other", title});
    case RooflinePoint::Role::library:
    case RooflinePoint::Role::engine:
      return drawing.diamond(at, 5, {role_name(p.role), title});
    case RooflinePoint::Role::best:
      if (plane.y.at(p.lo) - plane.y.at(p.hi) > 0.1)
        drawing.line({at.x, plane.y.at(p.lo)}, {at.x, plane.y.at(p.hi)}, {"whisker", ""});
      return drawing.circle(at, 4.4, {"best", title});
  }
}

const RooflinePoint* baseline_at(const std::vector<RooflinePoint>& points, const RooflinePoint& p) {
  for (const RooflinePoint& q : points)
    if (q.role == RooflinePoint::Role::baseline && q.experiment == p.experiment && q.at == p.at) return &q;
  return nullptr;
}

void draw_leaps(Drawing& drawing, Labels& labels, const Plane& plane,
                const std::vector<RooflinePoint>& points) {
  constexpr double kGap = 5;  // between an arrow and the marks it joins
  for (const RooflinePoint& p : points) {
    const RooflinePoint* from = p.role == RooflinePoint::Role::best ? baseline_at(points, p) : nullptr;
    if (!from) continue;
    const Place a       = plane.at(from->flops_per_byte, from->flops_per_s),
                b       = plane.at(p.flops_per_byte, p.flops_per_s);
    const double length = std::hypot(b.x - a.x, b.y - a.y);
    if (length < 2 * kGap + 2) continue;
    const double ux = (b.x - a.x) / length, uy = (b.y - a.y) / length;
    drawing.arrow({a.x + ux * kGap, a.y + uy * kGap}, {b.x - ux * kGap, b.y - uy * kGap}, {"leap", ""});
    labels.line(a, b);
  }
}

// What a point is called on the page.
using PointWords = std::function<std::string(const RooflinePoint&)>;

// The experiment; with its parameters where the experiment has several points.
PointWords experiment_words(const std::vector<RooflinePoint>& points) {
  return [&points](const RooflinePoint& p) {
    const bool several = std::any_of(points.begin(), points.end(), [&](const RooflinePoint& q) {
      return q.experiment == p.experiment && q.at != p.at;
    });
    return p.experiment.substr(p.experiment.find('/') + 1) + (several ? " " + p.at : "") +
           (p.invalid ? "/" + p.variant : "");
  };
}

void name_points(Drawing& drawing, Labels& labels, const Plane& plane,
                 const std::vector<RooflinePoint>& points, const PointWords& words_of) {
  // Invalid points are labelled first, so that they get the nearest places.
  std::vector<RooflinePoint> named;
  for (const bool invalid : {true, false})
    for (const RooflinePoint& p : points)
      if (p.invalid == invalid && (invalid || p.role == RooflinePoint::Role::best)) named.push_back(p);
  for (const RooflinePoint& p : named) {
    const std::string words = (p.invalid ? "INVALID " : "") + words_of(p);
    const Place at          = plane.at(p.flops_per_byte, p.flops_per_s);
    const double width      = text_width(words, kFont, Weight::bold);
    std::vector<Candidate> around;
    for (double far = 0; far <= 60; far += 12)
      for (const double y : {at.y + 4 - far, at.y + 4 + far})
        around.insert(around.end(), {Candidate{{at.x + 8, y}}, Candidate{{at.x - 8 - width, y}, Anchor::end},
                                     Candidate{{at.x - width / 2, y}, Anchor::middle}});
    const auto put = labels.put(words, around, p.invalid ? "halo label void" : "halo label", Weight::bold);
    // A line ties a label that had to move to its point.
    if (put && std::abs(put->y - 4 - at.y) > 20)
      drawing.line({at.x, at.y + (put->y < at.y ? -6 : 6)},
                   {std::clamp(at.x, put->x, put->x + width), put->y + (put->y < at.y ? 3 : -11)},
                   {"tie", ""});
  }
}

// Roofs, points and their names, in axes that are there.
void draw_plane(Drawing& drawing, const Plane& plane, const std::vector<MemoryRoof>& memory,
                const std::vector<ComputeRoof>& compute, const std::vector<RooflinePoint>& points,
                const PointWords& words_of) {
  // Lines and marks first, so that labels can avoid them.
  Labels labels(drawing, plane.frame);
  const auto slopes = memory_lines(plane, memory, compute), tops = compute_lines(plane, memory, compute);
  for (const RoofLine& roof : slopes) {
    drawing.line(roof.from, roof.to, {"roof", "memory roof: " + roof.words});
    labels.line(roof.from, roof.to);
  }
  for (const RoofLine& roof : tops) {
    drawing.line(roof.from, roof.to, {"roof-compute", "compute roof: " + roof.words});
    labels.line(roof.from, roof.to);
  }
  draw_leaps(drawing, labels, plane, points);
  for (const RooflinePoint& p : points) {
    draw_point(drawing, plane, p);
    labels.mark(plane.at(p.flops_per_byte, p.flops_per_s));
  }
  name_points(drawing, labels, plane, points, words_of);
  name_roofs(labels, plane.frame, slopes, tops);
}

template <class Roof>
nlohmann::json roofs_json(const std::vector<Roof>& roofs, double Roof::*rate, const char* unit) {
  nlohmann::json out = nlohmann::json::array();
  for (const Roof& roof : descending(roofs, rate)) out.push_back({{"name", roof.name}, {unit, roof.*rate}});
  return out;
}

}  // namespace

std::optional<double> attainable(const Roofs& roofs, double flops_per_byte) {
  double bytes = 0, flops = 0;
  for (const MemoryRoof& roof : roofs.memory)
    if (positive(roof.bytes_per_s)) bytes = std::max(bytes, roof.bytes_per_s);
  for (const ComputeRoof& roof : roofs.compute)
    if (positive(roof.flops_per_s)) flops = std::max(flops, roof.flops_per_s);
  if (bytes == 0 || flops == 0 || !positive(flops_per_byte)) return std::nullopt;
  return std::min(bytes * flops_per_byte, flops);
}

std::vector<RooflinePoint> roofline_points(const RunRecord& run, const Roofs& roofs) {
  std::vector<RooflinePoint> points;
  for (const ExperimentRecord& experiment : run.experiments)
    for (const PointRecord& point : experiment.points) {
      const VariantRecord* best = best_of(point);
      for (const VariantRecord& v : point.variants) {
        const double bytes = static_cast<double>(v.bytes_read) + static_cast<double>(v.bytes_written);
        const bool ran     = v.status == Outcome::ok || v.status == Outcome::invalid;
        if (!ran || !v.time_ns || !positive(v.time_ns->median) || !positive(v.flops) || !positive(bytes))
          continue;
        const auto rate = [&](double ns) {
          return v.flops / ((positive(ns) ? ns : v.time_ns->median) * 1e-9);
        };
        RooflinePoint p{.role           = &v == best               ? RooflinePoint::Role::best
                                          : v.id == point.baseline ? RooflinePoint::Role::baseline
                                          : v.kind == "library"    ? RooflinePoint::Role::library
                                          : v.kind == "engine"     ? RooflinePoint::Role::engine
                                                                   : RooflinePoint::Role::other,
                        .experiment     = experiment.id,
                        .at             = point.at.to_string(),
                        .variant        = v.id,
                        .flops_per_byte = v.flops / bytes,
                        .flops_per_s    = rate(v.time_ns->median),
                        .lo             = rate(v.time_ns->hi),
                        .hi             = rate(v.time_ns->lo),
                        .attainable     = attainable(roofs, v.flops / bytes),
                        .invalid        = is_invalid(v)};
        p.invalid = p.invalid || (p.attainable && p.flops_per_s > *p.attainable);
        points.push_back(std::move(p));
      }
    }
  return points;
}

std::string roofline_svg(const Roofs& roofs, const std::vector<RooflinePoint>& points, SvgFor use) {
  const auto memory  = descending(roofs.memory, &MemoryRoof::bytes_per_s);
  const auto compute = descending(roofs.compute, &ComputeRoof::flops_per_s);
  const auto leaps   = std::count_if(points.begin(), points.end(), [](const RooflinePoint& p) {
    return p.role == RooflinePoint::Role::best;
  });
  Drawing drawing(
      "roofline", kWhole.width, kWhole.height, "Roofline",
      fmt::format("Flops per second over flops per byte, both logarithmic: {} memory roofs, {} compute "
                  "roofs, {} arrows from a baseline to its best variant.",
                  memory.size(), compute.size(), leaps));
  const Plane plane = plane_of(kWhole, memory, compute, points);
  drawing.x_axis(plane.x, kWhole.top, kWhole.bottom, "arithmetic intensity, flop per declared byte", 9);
  drawing.y_axis(plane.y, kWhole.left, kWhole.right, "flop/s", 9);
  draw_plane(drawing, plane, memory, compute, points, experiment_words(points));
  const auto has = [&](auto matches) { return std::any_of(points.begin(), points.end(), matches); };
  const auto is  = [&](RooflinePoint::Role role) {
    return has([&](const RooflinePoint& p) { return p.role == role && !p.invalid; });
  };
  using Shape = Drawing::LegendItem::Shape;
  std::vector<Drawing::LegendItem> legend;
  if (is(RooflinePoint::Role::baseline)) legend.push_back({"baseline", "baseline"});
  if (is(RooflinePoint::Role::best)) legend.push_back({"best variant", "best"});
  if (is(RooflinePoint::Role::other)) legend.push_back({"other variants", "other"});
  if (is(RooflinePoint::Role::library)) legend.push_back({"library", "library", Shape::diamond});
  if (is(RooflinePoint::Role::engine)) legend.push_back({"engine's op", "engine", Shape::diamond});
  if (has([](const RooflinePoint& p) { return p.invalid; }))
    legend.push_back({"INVALID", "void", Shape::cross});
  if (!memory.empty()) legend.push_back({"memory roof, measured", "roof", Shape::line});
  if (!compute.empty()) legend.push_back({"compute roof, measured", "roof-compute", Shape::line});
  drawing.legend({kWhole.left, kWhole.height - 24}, kWhole.right, legend);
  return use == SvgFor::page ? drawing.embedded() : drawing.standalone();
}

std::string roofline_place_svg(const Roofs& roofs, const std::vector<RooflinePoint>& points,
                               const std::string& id) {
  auto memory  = descending(roofs.memory, &MemoryRoof::bytes_per_s);
  auto compute = descending(roofs.compute, &ComputeRoof::flops_per_s);
  if (memory.size() > 2) memory.erase(memory.begin() + 1, memory.end() - 1);
  if (compute.size() > 1) compute.resize(1);
  Drawing drawing(
      id, kPlaceFrame.width, kPlaceFrame.height,
      points.empty() ? "Roofline" : "Roofline of " + points.front().experiment,
      fmt::format("{} variants under the highest and lowest roofs, both axes logarithmic.", points.size()));
  const Plane plane = plane_of(kPlaceFrame, memory, compute, points);
  drawing.x_axis(plane.x, kPlaceFrame.top, kPlaceFrame.bottom, "flop per declared byte", 5);
  drawing.y_axis(plane.y, kPlaceFrame.left, kPlaceFrame.right, "flop/s", 6);
  draw_plane(drawing, plane, memory, compute, points, [](const RooflinePoint& p) { return p.variant; });
  return drawing.embedded();
}

nlohmann::json roofline_json(const Roofs& roofs, const std::vector<RooflinePoint>& points) {
  nlohmann::json list = nlohmann::json::array();
  for (const RooflinePoint& p : points) {
    const double bound = p.attainable.value_or(0);
    list.push_back(
        {{"experiment", p.experiment},
         {"at", p.at},
         {"variant", p.variant},
         {"role", role_name(p.role)},
         {"flops_per_byte", p.flops_per_byte},
         {"flops_per_s", {{"median", p.flops_per_s}, {"lo", p.lo}, {"hi", p.hi}}},
         {"attainable_flops_per_s", p.attainable ? nlohmann::json(bound) : nlohmann::json(nullptr)},
         {"invalid", p.invalid}});
  }
  return {{"schema", "fathom.roofline/1"},
          {"measured", roofs.measured},
          {"memory", roofs_json(roofs.memory, &MemoryRoof::bytes_per_s, "bytes_per_s")},
          {"compute", roofs_json(roofs.compute, &ComputeRoof::flops_per_s, "flops_per_s")},
          {"points", std::move(list)}};
}

}  // namespace fathom::report
