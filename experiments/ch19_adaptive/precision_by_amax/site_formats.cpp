#include "site_formats.h"

#include <algorithm>
#include <cmath>

#include "core/buffer.h"

namespace fathom::lab::precision_by_amax {

std::vector<Seen> seen_at_sites(const RoundedForward& p) {
  std::vector<Seen> seen(static_cast<size_t>(rounded_forward::sites()));
  Buffer<float> logits(p.logits.size());
  rounded_forward::forward(
      p.rows,
      [&](int64_t site, View<float, 2> x) {
        Seen& here = seen[static_cast<size_t>(site)];
        for (int64_t t = 0; t < x.extent(0); ++t) {
          for (int64_t c = 0; c < x.extent(1); ++c)
            here.amax = std::max(here.amax, static_cast<double>(std::abs(x(t, c))));
          const double error =
              rounded_forward::squares_of(Format::fp4, &x(t, 0), x.extent(1)).relative_error();
          here.fp4_error += error * error / static_cast<double>(x.extent(0));
        }
        here.fp4_error = std::sqrt(here.fp4_error);
      },
      logits.as({p.logits.extent(0), p.logits.extent(1)}));
  return seen;
}

Format format_by_amax(double amax) {
  return amax < 6 ? Format::fp4 : amax < 240 ? Format::fp8 : Format::bf16;
}

std::vector<Format> formats_by_amax(const std::vector<Seen>& seen) {
  std::vector<Format> formats;
  for (const Seen& site : seen) formats.push_back(format_by_amax(site.amax));
  return formats;
}

std::vector<Format> in_order_of(const std::vector<double>& rank, const std::vector<Format>& formats) {
  std::vector<Format> sorted = formats;
  std::sort(sorted.begin(), sorted.end());
  std::vector<size_t> order(rank.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank[a] < rank[b]; });
  std::vector<Format> chosen(formats.size());
  for (size_t i = 0; i < order.size(); ++i) chosen[order[i]] = sorted[i];
  return chosen;
}

void forward_in(const RoundedForward& p, const std::vector<Format>& of_sites) {
  rounded_forward::forward_in(
      p, [&](int64_t site, int64_t, const float*) { return of_sites[static_cast<size_t>(site)]; });
}

}  // namespace fathom::lab::precision_by_amax
