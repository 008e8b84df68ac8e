#include "engine/draft_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace fathom::engine {
namespace {

// A machine whose steps cost what a function says, and drafts that are right as a function says.
struct Scripted {
  std::function<double(int64_t sequences, int64_t drafted)> cost;
  // Whether the drafted token at that place of a draft is right; called in order until one is not.
  std::function<bool(int64_t step, int64_t place)> right;
  int64_t sequences = 1, longest = 7, steps = 4000;
  double confidence = 0.7;
};

struct Spent {
  double seconds = 0, without_drafts = 0;
  int64_t tokens = 0, drafted = 0;
  double share() const { return seconds / without_drafts; }
};

Spent spend(const Scripted& s, DraftBudget budget) {
  Spent spent;
  const double plain = s.cost(s.sequences, 0);
  for (int64_t step = 0; step < s.steps; ++step) {
    const int64_t length = budget.draft_length(s.sequences);
    DraftBudget::Step took{.sequences = s.sequences, .asked = length > 0};
    std::vector<Draft> drafts(static_cast<size_t>(s.sequences));
    if (length > 0) {
      for (Draft& draft : drafts)
        for (int64_t place = 0; place < std::min(length, s.longest); ++place) draft.add(1, s.confidence);
      const auto lengths = budget.choose(drafts, 60);
      for (size_t d = 0; d < drafts.size(); ++d) {
        drafts[d].truncate(lengths[d]);
        int64_t accepted = 0;
        while (accepted < drafts[d].size() && s.right(step, accepted)) ++accepted;
        budget.verified(drafts[d].confidence, accepted);
        took.drafted += drafts[d].size(), took.accepted += accepted;
      }
    }
    took.seconds = s.cost(s.sequences, took.drafted);
    budget.took(took);
    spent.seconds += took.seconds;
    spent.tokens += s.sequences + took.accepted;
    spent.drafted += took.drafted;
  }
  spent.without_drafts = plain * static_cast<double>(spent.tokens) / static_cast<double>(s.sequences);
  return spent;
}

// The 20b shape on an H200 (1,300 us for one row, 1.24 to 2.08 times that for 2 to 8), the bundled model on a
// CPU (each row 0.4 of the first), rows at full price, and rows that cost nothing.
struct PricedMachine {
  const char* name;
  std::function<double(int64_t, int64_t)> cost;
};
std::vector<PricedMachine> machines() {
  const auto by_rows = [](double first, double each, double drafting) {
    return [=](int64_t sequences, int64_t drafted) {
      return first + each * static_cast<double>(sequences + drafted) +
             drafting * static_cast<double>(drafted);
    };
  };
  return {{"moe on a GPU", by_rows(1.1e-3, 0.2e-3, 0)},
          {"eagle on a GPU", by_rows(1.1e-3, 0.2e-3, 0.065e-3)},
          {"bundled model on a CPU", by_rows(0.27e-3, 0.175e-3, 0)},
          {"full price", by_rows(0, 1e-3, 0)},
          {"drafting dearer than rows", by_rows(0, 1e-3, 1.5e-3)},
          {"free", by_rows(1e-3, 0, 0)}};
}

// Texts made to hurt: never right; right until drafts are long; right and wrong in phases of many lengths.
TEST(DraftBudget, NeverCostsMoreThanTwoPercent) {
  std::mt19937_64 random(1);
  const auto chance = [&](double p) { return std::uniform_real_distribution(0.0, 1.0)(random) < p; };
  using Right       = std::function<bool(int64_t, int64_t)>;
  std::vector<std::pair<std::string, Right>> texts{
      {"never right", [](int64_t, int64_t) { return false; }},
      {"first token only", [](int64_t, int64_t place) { return place == 0; }},
      {"right for 500 steps, then never", [](int64_t step, int64_t) { return step < 500; }}};
  for (const int64_t phase : {3, 17, 64, 65, 300})
    texts.emplace_back("phases of " + std::to_string(phase),
                       [=](int64_t step, int64_t) { return step / phase % 2 == 0; });
  for (const double p : {0.1, 0.3, 0.5})
    texts.emplace_back("right at random " + std::to_string(p),
                       [&, p](int64_t, int64_t) { return chance(p); });
  for (const PricedMachine& machine : machines())
    for (const auto& [text, right] : texts)
      for (const int64_t sequences : {1, 8})
        for (const double confidence : {0.1, 0.95}) {
          const Spent spent = spend({.cost       = machine.cost,
                                     .right      = right,
                                     .sequences  = sequences,
                                     .steps      = 1000,
                                     .confidence = confidence},
                                    DraftBudget(7));
          EXPECT_LE(spent.share(), 1.02)
              << machine.name << ", " << text << ", " << sequences << " sequences, confidence " << confidence;
        }
}

// A ledger's bound holds for what each step takes, also where steps take as long as they like.
TEST(DraftBudget, NoisyStepsCostAtMostTwoPercent) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> unit(0, 1);
  for (const PricedMachine& machine : machines()) {
    const auto noisy = [&](int64_t sequences, int64_t drafted) {
      return machine.cost(sequences, drafted) * (0.9 + 0.2 * unit(random));
    };
    double plain = 0;
    for (int i = 0; i < 10000; ++i) plain += noisy(1, 0) / 10000;
    Spent spent = spend({.cost = noisy, .right = [](int64_t, int64_t) { return false; }, .steps = 4000},
                        DraftBudget(7));
    EXPECT_LE(spent.seconds / (plain * static_cast<double>(spent.tokens)), 1.02) << machine.name;
  }
}

// Against the best fixed length, known in advance.
TEST(DraftBudget, ReachesTheBestFixedLength) {
  for (const PricedMachine& machine : machines())
    for (const double rate : {0.4, 0.6, 0.9})
      for (const int64_t sequences : {1, 4}) {
        std::mt19937_64 random(3);
        std::uniform_real_distribution<double> unit(0, 1);
        const auto right = [&](int64_t, int64_t) { return unit(random) < rate; };
        double best      = 1e9;  // seconds a token
        for (int64_t k = 0; k <= 7; ++k) {
          double tokens = 0, survival = 1;
          for (int64_t place = 0; place <= k; ++place, survival *= rate) tokens += survival;
          best = std::min(best,
                          machine.cost(sequences, k * sequences) / tokens / static_cast<double>(sequences));
        }
        const Spent spent =
            spend({.cost = machine.cost, .right = right, .sequences = sequences, .confidence = 0.5},
                  DraftBudget(7));
        EXPECT_GE(best * static_cast<double>(spent.tokens) / spent.seconds, 0.95)
            << machine.name << ", rate " << rate << ", " << sequences << " sequences";
      }
}

TEST(DraftBudget, ChoosesTheLikeliestTokensWithinTheRoom) {
  DraftBudget budget(7);
  for (int i = 0; i < 8; ++i) budget.took({.sequences = 2, .seconds = 1e-3});
  budget.took({.sequences = 2, .asked = true, .drafted = 14, .accepted = 14, .seconds = 1.001e-3});
  std::vector<Draft> drafts(2);
  for (const double p : {0.9, 0.9, 0.2}) drafts[0].add(1, p);
  for (const double p : {0.5, 0.9}) drafts[1].add(2, p);
  EXPECT_EQ(budget.choose(drafts, 1), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(budget.choose(drafts, 3), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(budget.choose(drafts, 0), (std::vector<int64_t>{0, 0}));
}

TEST(DraftBudget, DraftsNothingBeforeAStepsCostIsKnown) {
  DraftBudget budget(7);
  EXPECT_EQ(budget.draft_length(1), 0);
  for (int i = 0; i < 8; ++i) budget.took({.sequences = 1, .seconds = 1e-3});
  EXPECT_GT(budget.draft_length(1), 0);
  EXPECT_EQ(budget.draft_length(2), 0);
}

}  // namespace
}  // namespace fathom::engine
