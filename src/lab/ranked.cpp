#include "lab/ranked.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "lab/summary.h"
#include "lab/timed_point.h"
#include "measure/clock.h"
#include "measure/latin_square.h"

namespace fathom::lab {
namespace {

constexpr int kMostRanks     = 64;
constexpr int64_t kWarmSteps = 5;

// The first page of the group's memory: what the harness itself needs. Ranks are forked, so addresses agree.
struct Board {
  std::atomic<int> arrived;
  std::atomic<int> generation;
  std::atomic<int> abandoned;  // a rank is gone: nobody waits any more
  double step_ns[kMostRanks];
  uint64_t nonce[kMostRanks];
  uint64_t sum[kMostRanks];
};

class GroupBroken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Spins, then gives the processor away, since ranks may outnumber CPUs, and asks whether everybody is still
// there.
void wait_for_all(Board& board, int size, const std::function<void()>& look_around) {
  const int generation = board.generation.load(std::memory_order_acquire);
  if (board.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
    board.arrived.store(0, std::memory_order_relaxed);
    board.generation.fetch_add(1, std::memory_order_release);
    return;
  }
  for (int64_t spins = 0; board.generation.load(std::memory_order_acquire) == generation; ++spins) {
    if (board.abandoned.load(std::memory_order_relaxed)) throw GroupBroken("another rank is gone");
    if (spins > 2000) usleep(spins > 4000 ? 50 : 0);
    if (spins > 4000 && spins % 256 == 0) look_around();
  }
}

struct Group {
  Board* board = nullptr;
  size_t bytes = 0;
  std::span<std::byte> shared;
  explicit Group(int64_t shared_bytes) : bytes(sizeof(Board) + static_cast<size_t>(shared_bytes)) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) system_failed("mmap of a group's memory", errno, __FILE__, __LINE__);
    board  = static_cast<Board*>(memory);
    shared = {static_cast<std::byte*>(memory) + sizeof(Board), static_cast<size_t>(shared_bytes)};
  }
  ~Group() { munmap(board, bytes); }
  Group(const Group&) = delete;
};

struct Plan {
  const RankedExperiment& experiment;
  const Point& at;
  const std::vector<int>& variants;
  int64_t rounds;
  uint64_t seed;
};

// What every rank does, in step: warm-up, then the rounds, in an order that all derive from the seed alone.
void take_part(const Plan& plan, Group& group, int rank, const std::function<void()>& look_around,
               const std::function<void(int variant, bool timed)>& after_step) {
  Board& board   = *group.board;
  const int size = plan.experiment.ranks;
  const Rank me(rank, size, group.shared, [&] { wait_for_all(board, size, look_around); });
  Seeds nonces(plan.seed + 1000003ull * static_cast<uint64_t>(rank));
  const auto step = [&](int variant, bool timed) {
    board.nonce[rank]   = nonces.next();
    const uint64_t mine = board.nonce[rank];
    me.barrier();
    const int64_t start = measure::now_ns(measure::Clock::wall);
    const uint64_t sum  = plan.experiment.variants[static_cast<size_t>(variant)].step(plan.at, me, mine);
    board.step_ns[rank] = static_cast<double>(measure::now_ns(measure::Clock::wall) - start);
    board.sum[rank]     = sum;
    me.barrier();
    after_step(variant, timed);
    me.barrier();  // nobody writes the board again before rank 0 has read it
  };
  for (const int variant : plan.variants)
    for (int64_t i = 0; i < kWarmSteps; ++i) step(variant, false);
  for (int64_t round = 0; round < plan.rounds; ++round)
    for (const int turn : measure::round_order(static_cast<int>(plan.variants.size()), round, plan.seed))
      step(plan.variants[static_cast<size_t>(turn)], true);
}

}  // namespace

ExperimentInfo info_of(const RankedExperiment& e) {
  FATHOM_EXPECT(e.ranks >= 1 && e.ranks <= kMostRanks, "a ranked experiment has 1 to 64 ranks");
  ExperimentInfo info{.shape       = Shape::ranked,
                      .question    = e.question,
                      .axes        = e.axes,
                      .catalog     = e.catalog,
                      .declaration = &e};
  for (const RankedVariant& v : e.variants)
    info.variants.push_back({.id         = v.id,
                             .kind       = info.variants.empty() ? Kind::baseline : Kind::optimized,
                             .techniques = v.techniques,
                             .idea       = v.idea,
                             .prediction = v.prediction,
                             .has_launch = v.step != nullptr});
  return info;
}

void measure_ranked(const ExperimentInfo& info, const MeasureOptions& options, Events& events) {
  const auto& experiment = *static_cast<const RankedExperiment*>(info.declaration);
  for (const Point& at : timed_points(info, options.run)) {
    if (std::find(options.done.begin(), options.done.end(), at.to_string()) != options.done.end()) continue;
    PointRecord point{.at       = at,
                      .cache    = "hot",
                      .clock    = "wall",
                      .stopped  = "rounds",
                      .variants = blank_records(info, options)};
    std::vector<int> alive;
    for (size_t v = 0; v < point.variants.size(); ++v)
      if (point.variants[v].status == Outcome::ok) alive.push_back(static_cast<int>(v));
    point.rounds = options.run.check_only   ? 0
                   : options.run.repeat > 0 ? options.run.repeat
                   : options.run.quick      ? 40
                                            : 200;
    const Plan plan{experiment, at, alive, point.rounds, options.run.seed};

    Group group(experiment.shared_bytes);
    std::vector<pid_t> others;
    for (int rank = 1; rank < experiment.ranks; ++rank) {
      const pid_t pid = FATHOM_SYSTEM(fork());
      if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        try {
          take_part(
              plan, group, rank, [] {}, [](int, bool) {});
        } catch (...) {
          group.board->abandoned = 1;
          _exit(1);
        }
        _exit(0);
      }
      others.push_back(pid);
    }
    const auto someone_died = [&others] {
      for (const pid_t other : others) {
        siginfo_t info{};
        // WNOWAIT leaves it to be reaped below.
        if (waitid(P_PID, static_cast<id_t>(other), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid == other && !(info.si_code == CLD_EXITED && info.si_status == 0))
          throw GroupBroken("a rank died");
      }
    };
    std::vector<std::vector<double>> samples(point.variants.size());
    try {
      take_part(plan, group, 0, someone_died, [&](int variant, bool timed) {
        events.phase(info.variants[static_cast<size_t>(variant)].id, timed ? "measure" : "warm up", 0);
        uint64_t sum = 0;
        for (int rank = 0; rank < experiment.ranks; ++rank) sum += group.board->nonce[rank];
        VariantRecord& record = point.variants[static_cast<size_t>(variant)];
        for (int rank = 0; rank < experiment.ranks && record.status == Outcome::ok; ++rank)
          if (group.board->sum[rank] != sum)
            set_caught(record, {Outcome::wrong, timed ? "timed_check" : "nonce",
                                fmt::format("rank {} did not come to know the other ranks' nonces", rank)});
        if (timed)
          samples[static_cast<size_t>(variant)].push_back(
              *std::max_element(group.board->step_ns, group.board->step_ns + experiment.ranks));
      });
    } catch (const GroupBroken& e) {
      group.board->abandoned = 1;
      for (const pid_t other : others) kill(other, SIGKILL);
      for (const int v : alive)
        set_caught(point.variants[static_cast<size_t>(v)], {Outcome::crashed, "exception", e.what()});
    }
    for (const pid_t other : others) waitpid(other, nullptr, 0);
    set_times_and_ratios(point, samples, RatioInterval::order_statistics);
    events.point(point);
  }
}

}  // namespace fathom::lab
