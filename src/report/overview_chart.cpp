#include "report/overview_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "lab/quantity.h"
#include "report/highlights.h"
#include "report/interval_bar.h"

namespace fathom::report {

using namespace lab;

namespace {

// Where marks may be, in pixels: about what the page gives a desk and a phone. Only the choice of places for
// numbers needs it.
struct PlotSize {
  double width, height;
};
constexpr PlotSize kPlotSizes[] = {{690, 330}, {300, 190}};
constexpr double kBadge         = 17;    // pixels across, a number in a circle
constexpr double kShelf         = 13.0;  // percent of the height for experiments without a share

struct PlotMark {
  size_t experiment;
  const VariantRecord* variant;
  bool advisory;
  double x, lo, hi, y;  // percent
  std::string title;
};

std::vector<PlotMark> plot_marks(const RunRecord& run, const Scale& x, double share_bottom,
                                 double most_share) {
  std::vector<PlotMark> marks;
  for (size_t e = 0; e < run.experiments.size(); ++e) {
    const PointRecord* point  = headline_point(run.experiments[e]);
    const VariantRecord* best = point ? best_of(*point) : nullptr;
    if (!best) continue;
    const Ratio& r    = *best->ratio;
    const bool shared = best->share_of_limit && std::isfinite(*best->share_of_limit);
    marks.push_back(
        {e, best, is_advisory(*point), x.at(r.median), x.at(r.lo), x.at(r.hi),
         shared ? Scale{{0, most_share}, share_bottom, 0}.at(*best->share_of_limit) : -1,
         fmt::format("{}{}{}: {} {} {}, {}", run.experiments[e].id,
                     point->at.parameters().empty() ? "" : " at ", point_text(point->at), best->id,
                     ratio_text(r.median), ratio_interval_text(r.median, r.lo, r.hi),
                     shared ? share_text(*best->share_of_limit) + " of the limit" : "no limit declared")});
  }
  // Neighbours on the shelf take turns in three rows.
  std::vector<PlotMark*> shelf;
  for (PlotMark& mark : marks)
    if (mark.y < 0) shelf.push_back(&mark);
  std::stable_sort(shelf.begin(), shelf.end(), [](const auto* a, const auto* b) { return a->x < b->x; });
  constexpr double kRows[] = {100 - kShelf * 0.5, 100 - kShelf * 0.78, 100 - kShelf * 0.22};
  for (size_t i = 0; i < shelf.size(); ++i) shelf[i]->y = kRows[i % 3];
  return marks;
}

// The offset of each number from its mark, in pixels: the first of a list at which it covers no other number
// and, if there is such a place, no mark, on any of the sizes.
std::vector<Place> badge_places(const std::vector<PlotMark>& marks,
                                const std::vector<const PlotMark*>& numbered) {
  std::vector<Place> candidates;
  for (const double far : {14.0, 22.0, 32.0, 44.0})
    for (const auto& [dx, dy] :
         {Place{1, 0}, {-1, 0}, {0, -1}, {0, 1}, {.7, -.7}, {-.7, -.7}, {.7, .7}, {-.7, .7}})
      candidates.push_back({dx * far, dy * far});
  std::vector<Place> places;
  for (size_t n = 0; n < numbered.size(); ++n) {
    const auto fits = [&](Place offset, bool over_marks) {
      for (const auto& [width, height] : kPlotSizes) {
        const auto centre = [&](const PlotMark& mark) {
          return Place{mark.x / 100 * width, mark.y / 100 * height};
        };
        const Place own = centre(*numbered[n]), at{own.x + offset.x, own.y + offset.y};
        if (at.x < kBadge / 2 || at.x > width - kBadge / 2 || at.y < kBadge / 2 || at.y > height - kBadge / 2)
          return false;
        for (size_t k = 0; k < n; ++k) {
          const Place other = centre(*numbered[k]);
          if (std::hypot(at.x - other.x - places[k].x, at.y - other.y - places[k].y) < kBadge + 2)
            return false;
        }
        for (const PlotMark& mark : marks)
          if (!over_marks && std::hypot(at.x - centre(mark).x, at.y - centre(mark).y) < kBadge / 2 + 5)
            return false;
      }
      return true;
    };
    Place chosen = candidates.front();
    for (const bool over_marks : {true, false})  // the stricter last, so that it wins
      for (auto candidate = candidates.rbegin(); candidate != candidates.rend(); ++candidate)
        if (fits(*candidate, over_marks)) chosen = *candidate;
    places.push_back(chosen);
  }
  return places;
}

std::string mark_html(const PlotMark& mark) {
  const std::string_view style = mark.advisory ? "doubt" : look_of(*mark.variant).style;
  return fmt::format(
      "<i class=\"reach {0}\" style=\"left:{1};width:{2};top:{3}\"></i><a class=\"mark {0}{4}\" "
      "href=\"#e{5}\" tabindex=\"-1\" style=\"left:{6};top:{3}\" title=\"{7}\"></a>\n",
      style, percent_text(mark.lo), percent_text(mark.hi - mark.lo), percent_text(mark.y),
      mark.advisory ? " hollow" : "", mark.experiment, percent_text(mark.x), escape(mark.title));
}

}  // namespace

std::string overview_chart(const RunRecord& run, const std::vector<Lesson>& lessons) {
  std::vector<Ratio> ratios;
  double most_share = 1;
  bool any_share = false, any_without = false;
  for (const ExperimentRecord& experiment : run.experiments) {
    const PointRecord* point  = headline_point(experiment);
    const VariantRecord* best = point ? best_of(*point) : nullptr;
    if (!best) continue;
    ratios.push_back(*best->ratio);
    const bool shared = best->share_of_limit && std::isfinite(*best->share_of_limit);
    if (shared) most_share = std::max(most_share, *best->share_of_limit);
    (shared ? any_share : any_without) = true;
  }
  if (ratios.empty()) return "";
  const Scale x             = ratio_scale(ratios);
  const double share_bottom = !any_without ? 100 : any_share ? 100 - kShelf - 4 : 0;
  const Scale y{{0, most_share}, share_bottom, 0};
  const auto marks = plot_marks(run, x, share_bottom, most_share);

  std::string out = fmt::format(
      "<div class=\"plot\" role=\"img\" aria-label=\"Speed-up and share of the limit of {} experiments; the "
      "table below has the numbers.\">\n<div class=\"area\">\n",
      ratios.size());
  if (any_share)
    for (const double share : {0.0, 0.25, 0.5, 0.75, 1.0})
      out += fmt::format(
          "<i class=\"gy\" style=\"top:{0}\"></i><small class=\"ty\" style=\"top:{0}\">{1:.0f} "
          "%</small>\n",
          percent_text(y.at(share)), share * 100);
  if (any_without)
    out += fmt::format(
        "<i class=\"shelf\" style=\"top:{}\"></i><small class=\"ty\" style=\"top:{}\">no "
        "limit</small>\n",
        percent_text(any_share ? 100 - kShelf : 0), percent_text(100 - kShelf / 2));
  for (const double tick : ticks(x, 7)) {
    if (x.at(tick) > 97) continue;  // its words would leave the picture
    out += fmt::format(
        "<i class=\"gx\" style=\"left:{0}\"></i><small class=\"tx\" "
        "style=\"left:{0}\">{1}×</small>\n",
        percent_text(x.at(tick)), ratio_tick(tick));
  }
  out += fmt::format("<i class=\"gx one\" style=\"left:{}\"></i>\n", percent_text(x.at(1)));
  for (const PlotMark& mark : marks) out += mark_html(mark);

  std::vector<const PlotMark*> numbered;
  std::vector<size_t> numbers;
  for (size_t n = 0; n < lessons.size(); ++n)
    for (const PlotMark& mark : marks)
      if (mark.experiment == lessons[n].experiment) {
        numbered.push_back(&mark);
        numbers.push_back(n + 1);
      }
  const auto places = badge_places(marks, numbered);
  for (size_t n = 0; n < numbered.size(); ++n)
    out += fmt::format("<b class=\"badge\" style=\"left:{};top:{};margin:{:.0f}px 0 0 {:.0f}px\">{}</b>\n",
                       percent_text(numbered[n]->x), percent_text(numbered[n]->y), places[n].y, places[n].x,
                       numbers[n]);
  return out + "</div>\n<p class=\"xname\">speed-up over the baseline, logarithmic</p>\n</div>\n";
}

}  // namespace fathom::report
