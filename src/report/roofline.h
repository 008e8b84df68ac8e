// Rooflines (Williams, Waterman, Patterson 2009) from measured ceilings of this machine: several levels of
// memory, several compute peaks. Points are the variants of a run at their declared flops and
// bytes; an arrow leads from each baseline to the best variant of its point.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/record.h"

namespace fathom::report {

struct MemoryRoof {
  std::string name;        // "DRAM read, 2 threads"
  double bytes_per_s = 0;  // the highest ever measured: a point above the top roof is INVALID
};

struct ComputeRoof {
  std::string name;        // "fp32 FMA, AVX2, 1 thread"
  double flops_per_s = 0;  // the highest ever measured
};

struct Roofs {
  std::vector<MemoryRoof> memory;    // any order; the top of a roofline is the highest of each kind
  std::vector<ComputeRoof> compute;  // empty: no ceilings were measured
  std::string measured;              // where and when: "kestrel, 2026-05-02T10:00:00Z"
};

// The most that any measured ceiling allows at so many flops per byte; absent without a roof of each kind.
std::optional<double> attainable(const Roofs& roofs, double flops_per_byte);

struct RooflinePoint {
  enum class Role { baseline, best, other, library, engine } role = Role::other;
  std::string experiment, at, variant;
  double flops_per_byte = 0;
  double flops_per_s = 0, lo = 0, hi = 0;  // from the median time and its interval
  std::optional<double> attainable;
  bool invalid = false;  // its record says so, or it lies above every roof
};

// Of every variant that ran, was right, and declares flops and bytes; in record order.
std::vector<RooflinePoint> roofline_points(const lab::RunRecord& run, const Roofs& roofs);

// The place of one experiment: the outermost roofs and its variants, small enough for a phone. `id` is unique
// on its page.
std::string roofline_place_svg(const Roofs& roofs, const std::vector<RooflinePoint>& points,
                               const std::string& id);

enum class SvgFor { page, file };  // a page brings chart_style() itself
std::string roofline_svg(const Roofs& roofs, const std::vector<RooflinePoint>& points, SvgFor use);
nlohmann::json roofline_json(const Roofs& roofs, const std::vector<RooflinePoint>& points);

}  // namespace fathom::report
