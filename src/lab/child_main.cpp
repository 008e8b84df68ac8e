#include "lab/child_main.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/expect.h"
#include "lab/child_protocol.h"
#include "lab/measure_experiment.h"
#include "lab/registry.h"

namespace fathom::lab {

int child_main(int argc, char** argv, const ProfilerFactory& make_profiler) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argc < 3) return 5;
  const nlohmann::json told = nlohmann::json::parse(argv[2]);
  if (getppid() != told.at("parent").get<int>()) return 1;  // it died before the line above could tell us
  PhaseBoard board = PhaseBoard::open(kPhaseFd);
  ChildEvents events(board);
  try {
    const std::string id             = told.at("experiment");
    const ExperimentInfo* experiment = find_experiment(id);
    FATHOM_EXPECT(experiment != nullptr, "the child does not know the experiment");
    const MeasureOptions options = options_from(told);
    for (const Candidate& candidate : options.run.candidates)
      if (const Status added = add_candidate(id, candidate); !added)
        throw std::runtime_error(added.error().message);
    std::unique_ptr<Profiler> profiler;
    if (make_profiler && !options.run.profile_set.empty()) profiler = make_profiler(options.run);
    measure_experiment(*experiment, options, events, profiler.get());
  } catch (const std::exception& e) {
    write_line(kEventsFd, {{"error", e.what()}});
    return 1;
  }
  write_line(kEventsFd, {{"done", true}});
  // Skips the static destructors of whatever a variant loaded: a crash in one of them means nothing here.
  _exit(0);
}

}  // namespace fathom::lab
