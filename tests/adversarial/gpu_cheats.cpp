#include "adversarial/gpu_cheats.h"

#include <deque>
#include <string>

#include "lab/experiment.h"

namespace fathom::lab {

Squares::Squares(const Point& at, Arena& arena)
    : in(arena.input<float>({at["n"]}, Uniform{-1, 1})), out(arena.output<float>({at["n"]})) {}
Cost Squares::cost() const { return {.read = in.bytes(), .written = out.bytes()}; }
double Squares::expected(int64_t i) const { return static_cast<float>(in(i)*in(i)); }

namespace {

Variant<Squares> variant(const std::string& id, GpuLaunch<Squares> launch) {
  Variant<Squares> made;
  made.id     = id;
  made.launch = on_gpu(launch);
  return made;
}

void add(const std::string& name, std::vector<Variant<Squares>> variants) {
  static std::deque<Experiment<Squares>> kept;  // registered until the program ends
  kept.push_back({.question = "Is " + name + " caught?",
                  .limit    = Limit::memory,
                  .axes     = {{"n", {int64_t{1} << 27}}},
                  .check_at = {{"n", {int64_t{1} << 20}}},
                  .variants = std::move(variants),
                  .backend  = Backend::cuda});
  register_experiment(info_of(kept.back()), "experiments/" + name + "/experiment.cpp");
}

}  // namespace

void register_gpu_cheats() {
  const auto cheat = [](const std::string& name, GpuLaunch<Squares> launch) {
    add("cheats/gpu_" + name, {variant("baseline", gpu_honest), variant(name, launch)});
  };
  cheat("other_stream", other_stream);
  cheat("unfinished_at_end", unfinished_at_end);
  cheat("fewer_graph_nodes", fewer_graph_nodes);
  cheat("memo_on_device", memo_on_device);
  cheat("never_written", never_written);
  cheat("persistence_left_on", persistence_left_on);
  cheat("waits_undeclared", waits_undeclared);
  cheat("honest_twin", gpu_honest);
  add("deaths/loses_the_device",
      {variant("baseline", gpu_honest), variant("loses_the_device", loses_the_device),
       variant("bystander", gpu_honest)});
}

}  // namespace fathom::lab
