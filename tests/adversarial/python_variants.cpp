#include "adversarial/python_variants.h"

#include <deque>
#include <string>

#include "lab/experiment.h"

namespace fathom::lab {
namespace {

// out(i) = sum_j x(i, j), in memory that other processes can open.
struct RowSums {
  View<const float, 2> x;
  View<float, 1> out;

  RowSums(const Point& at, Arena& arena)
      : x(arena.input<float>({at["rows"], at["cols"]}, Uniform{-1, 1}, Pages::huge, Place::shared)),
        out(arena.output<float>({at["rows"]}, Pages::huge, Place::shared)) {}

  Cost cost() const { return {.read = x.bytes(), .written = out.bytes()}; }
  Sum expected(int64_t i) const {
    Sum sum{0, 0, x.extent(1), DType::fp32};
    for (int64_t j = 0; j < x.extent(1); ++j) {
      sum.value += x(i, j);
      sum.magnitude += std::abs(static_cast<double>(x(i, j)));
    }
    return sum;
  }
};

void row_sums(const RowSums& p, Context&) {
  for (int64_t i = 0; i < p.out.extent(0); ++i) {
    float sum = 0;
    for (int64_t j = 0; j < p.x.extent(1); ++j) sum += p.x(i, j);
    p.out(i) = sum;
  }
}

template <const char* how>
PythonArguments arguments(const RowSums& p) {
  return {{"x", p.x}, {"out", p.out}, {"how", how}};
}

template <const char* how>
void add() {
  static const Experiment<RowSums> experiment{
      .question = "What does the harness make of a Python process?",
      .axes     = {{"rows", {int64_t{32}}}, {"cols", {int64_t{256}}}},
      .check_at = {{"rows", {int64_t{0}, int64_t{1}, int64_t{7}}}, {"cols", {int64_t{1}, int64_t{13}}}},
      .variants = {{.id = "baseline", .launch = row_sums},
                   {.id     = how,
                    .kind   = Kind::library,
                    .python = {.script    = FATHOM_SOURCE_TREE "/tests/adversarial/row_sums.py",
                               .arguments = arguments<how>,
                               .longest_s = 2}},
                   {.id = "bystander", .launch = row_sums}},
  };
  register_experiment(info_of(experiment), std::string("experiments/python/") + how + "/experiment.cpp");
}

constexpr char kPlain[] = "plain", kWrong[] = "wrong", kUnwritten[] = "unwritten",
               kFalseTime[] = "false_time", kRaises[] = "raises", kMissing[] = "missing_module",
               kDies[] = "dies", kHangs[] = "hangs";

}  // namespace

void register_python_variants() {
  add<kPlain>();
  add<kWrong>();
  add<kUnwritten>();
  add<kFalseTime>();
  add<kRaises>();
  add<kMissing>();
  add<kDies>();
  add<kHangs>();
}

}  // namespace fathom::lab
