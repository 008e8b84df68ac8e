// Sessions with the bundled model: an engine, or a router in front of several, is started; a workload made
// from a seed is replayed as its arrival times say, greedily; every token's arrival is noted.
//
// Nothing of a workload is stored: it follows from the experiment's code and the seed of the round, which
// follows from the run's seed, which the record has.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/generator.h"
#include "lab/session.h"
#include "model/checkpoint.h"
#include "model/tasks.h"
#include "serve/load_statistics.h"

namespace fathom::lab::engine_session {

// models/tiny: what it is, and what it is asked.
struct Bundled {
  model::Checkpoint checkpoint;
  model::TaskGrammar grammar;
  std::vector<const model::Task*> tasks;  // the measured ones
};
// Opened once. Throws Unavailable, needs_model, where the folder is not there.
const Bundled& bundled();

// Case `index` of that seed, its task the one named, or index's turn of all: a conversation of `shots` cases
// with their answers and one more to answer, as token ids. `about` says which cases are shown: equal ones
// are equal beginnings of prompts.
struct Case {
  uint64_t seed = 0, index = 0;
  std::string task = "";
  int64_t shots    = 0;
  uint64_t about   = 0;
};
std::vector<model::TokenId> prompt_of(const Case& asked);

struct Asked {
  std::vector<model::TokenId> prompt;
  int64_t max_tokens = 192;
  bool exactly       = false;  // as many tokens, whatever the model says
  int priority       = 0;
  double at_s        = 0;      // since the replay's start; requests are asked in order of it
  bool apart         = false;  // of those that an experiment looks at
  int64_t bucket     = 0;      // order among those that come at the same time
};
using Workload = std::function<std::vector<Asked>(uint64_t seed)>;

// All there from the start; each ends by itself, after 40 tokens on average.
Workload short_answers(int64_t count);
// The same, but answers have exactly 8 to 256 tokens, as many of them between 8 and 16 as between 128 and
// 256: most are short, a few are long.
Workload answers_of_many_lengths(int64_t count);

// What a replay saw. Vectors have an element for each request, in the workload's order.
struct Seen {
  std::vector<Asked> asked;
  std::vector<serve::RequestRecord> requests;  // failed: turned away
  std::vector<std::vector<int64_t>> outputs;
  std::vector<int64_t> cached_tokens;  // of prompts
  serve::LoadSummary summary;
  engine::GeneratorStats stats;  // once all have ended
  double submit_s      = 0;      // spent in submit(), median
  int64_t peak_running = 0, peak_pages = 0;
  // Means over the moments when a token came and nobody's prompt was on its way: pages in use, and places in
  // them that hold something a next token reaches.
  double pages = 0, places_used = 0;
};

// Throughput, percentiles of TTFT, TPOT, gaps between tokens and whole answers, steps and rows a step.
using Metrics = std::map<std::string, Metric>;
Metrics usual_metrics(const Seen& seen);
using MoreMetrics = std::function<void(const Seen&, Metrics&)>;

using Start = std::function<std::unique_ptr<engine::Generator>()>;
// Uses all CPUs that this process may, unless the configuration says otherwise.
Start engine_of(const engine::EngineConfig& config);

// An engine on the GPU for up to 64 sequences of 1024 tokens, whose answers do not depend on who is in a step
// with whom, which is a matter of timing. Starts throw Unavailable where the GPU cannot run it.
engine::EngineConfig on_gpu();
// How many graphs it has captured, before the first request and since.
void count_graphs(const Seen& seen, Metrics& metrics);

std::unique_ptr<Session> replay_on(const Start& start, const Workload& workload,
                                   const MoreMetrics& more = {});

// Requests a second that are answered when all of a workload are there from the start: the best of three, for
// whatever disturbs a replay only slows it.
double saturation_rps(const Start& start, const Workload& workload);

// Poisson arrivals; the last comes at exactly count / rps.
void arrive(std::vector<Asked>& asked, double rps, uint64_t seed);
// The same requests, arriving so.
Workload in_open_loop(Workload workload, double rps);

}  // namespace fathom::lab::engine_session
