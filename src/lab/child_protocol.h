// What parent and child of a run say to each other. The parent gives its options as one argument of JSON; the
// child answers with lines of JSON on a pipe: {"point": ...}, {"profile": ...}, {"error": ...}, and last
// {"done": true}. What it is doing at the moment lies on a page of shared memory (lab/child_phase.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lab/child_phase.h"
#include "lab/experiment_info.h"
#include "lab/measure_options.h"

namespace fathom::lab {

// File descriptors of the child.
inline constexpr int kEventsFd = 3, kPhaseFd = 4;

nlohmann::json child_options(const ExperimentInfo& experiment, const MeasureOptions& options);
MeasureOptions options_from(const nlohmann::json& told);

// Ends the process where nobody reads any more.
void write_line(int fd, const nlohmann::json& message);

// The child's events, as lines and phases.
class ChildEvents final : public Events {
 public:
  explicit ChildEvents(PhaseBoard& board) : board_(board) {}
  void phase(std::string_view variant, std::string_view phase, double fraction) override;
  void point(const PointRecord& point) override;
  void profiled(const Point& at, std::string_view variant, const Profile& profile) override;

 private:
  PhaseBoard& board_;
};

// Puts what a message of the child says into the record; its points are also added to `done`.
void merge_message(const nlohmann::json& message, ExperimentRecord& record, std::vector<std::string>& done);

}  // namespace fathom::lab
