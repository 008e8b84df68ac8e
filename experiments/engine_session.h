// Sessions with the bundled model. An engine, or a router in front of several, is started; a workload made
// from a seed is replayed by its arrival times, greedily unless a request has a temperature; the arrival time
// of every token is recorded.
//
// No workload is stored: it follows from the experiment's code and the round's seed. That follows from the
// run's seed, which is in the record.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/generator.h"
#include "lab/experiment.h"
#include "lab/session.h"
#include "load/statistics.h"
#include "model/checkpoint.h"
#include "model/tasks.h"

namespace fathom::lab::engine_session {

// models/tiny and its tasks.
struct Bundled {
  model::Checkpoint checkpoint;
  model::TaskGrammar grammar;
  std::vector<const model::Task*> tasks;  // the measured ones
};
// Opened once. Throws Unavailable, needs_model, if the folder does not exist.
const Bundled& bundled();

// Case `index` of that seed, of the named task, or of all tasks in turn: a conversation of `shots` cases with
// their answers and one more case to answer, as token ids. `about` is the seed of the shown cases: prompts
// with the same `about` share a prefix.
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
  bool exactly       = false;  // generate max_tokens, ignoring the end token
  int priority       = 0;
  // Requests of a phase are submitted when all of the phases before have ended.
  int64_t phase  = 0;
  double at_s    = 0;      // arrival, since the phase's start
  bool apart     = false;  // marks requests that an experiment reports apart
  int64_t bucket = 0;      // order among requests that arrive at the same time
  // 0: greedy. A sampled answer is a function of prompt, temperature and seed.
  double temperature     = 0;
  uint64_t sampling_seed = 0;
};
using Workload = std::function<std::vector<Asked>(uint64_t seed)>;

// All arrive at the start; each stops at its end token, after 40 tokens on average.
Workload short_answers(int64_t count);
// The same, but answers have exactly 8 to 256 tokens, log-uniformly: as many between 8 and 16 as between 128
// and 256.
Workload answers_of_many_lengths(int64_t count);

// Measurements of a replay. Vectors have an element for each request, in the workload's order.
struct Seen {
  std::vector<Asked> asked;
  std::vector<load::RequestRecord> requests;  // failed: refused
  std::vector<std::vector<int64_t>> outputs;
  std::vector<int64_t> cached_tokens;  // prompt tokens from the prefix cache
  std::vector<double> phase_s;         // from its start to its last answer
  load::Summary summary;
  engine::GeneratorStats stats;  // after the last request
  double submit_s      = 0;      // median time of submit()
  int64_t peak_running = 0, peak_pages = 0;
  // Means over the moments when a token arrived and no prompt was in work: pages in use, and slots in them
  // that a next token reaches.
  double pages = 0, slots_used = 0;
};

// Throughput; percentiles of TTFT, TPOT, ITL and end-to-end latency; steps, and rows a step; the engine's
// memory, the most KV pages in use, and on CPUs the router's imbalance.
using Metrics = std::map<std::string, Metric>;
Metrics usual_metrics(const Seen& seen);
using MoreMetrics = std::function<void(const Seen&, Metrics&)>;

using Start = std::function<std::unique_ptr<engine::Generator>()>;
// Uses all CPUs of this process, unless the configuration says otherwise.
Start engine_of(const engine::EngineConfig& config);

// An engine on the GPU for up to 64 sequences of 1024 tokens. It is batch invariant, because timing decides
// which requests share a step. Starting it throws Unavailable if the GPU cannot run it.
engine::EngineConfig on_gpu();
// Adds the number of graphs captured, before the first request and since.
void count_graphs(const Seen& seen, Metrics& metrics);

std::unique_ptr<Session> replay_on(const Start& start, const Workload& workload,
                                   const MoreMetrics& more = {});

// Requests a second when all of a workload arrive at the start: the best of three, because disturbances only
// slow a replay down.
double saturation_rps(const Start& start, const Workload& workload);

// Poisson arrivals; the last is at exactly count / rps.
void arrive(std::vector<Asked>& asked, double rps, uint64_t seed);
// The same requests with such arrivals.
Workload in_open_loop(Workload workload, double rps);

}  // namespace fathom::lab::engine_session
