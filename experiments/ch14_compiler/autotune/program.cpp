#include "program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <memory>

#include "compile/canonical.h"
#include "compile/executable.h"
#include "compile/programs.h"

namespace fathom::lab::autotune {
namespace {

using mlp_layer::kHidden, mlp_layer::kIntermediate;

struct OwnFolder {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("fathom_autotune_{}", getpid());

  ~OwnFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

}  // namespace

Launch<Layer> launch_of(const Layer& layer, Context& context, compile::Scheduler scheduler) {
  compile::Program p("mlp");
  const compile::Extent T = p.symbol({.name = "T"});
  const compile::Tensor x = p.input("x", {T, kHidden});
  const compile::Mlp w{.norm    = p.input("norm", {kHidden}),
                       .up      = p.input("up", {2 * kIntermediate, kHidden}, DType::bf16),
                       .up_bias = p.input("up_bias", {2 * kIntermediate}, DType::bf16),
                       .down    = p.input("down", {kHidden, kIntermediate}, DType::bf16)};
  p.output("y", mlp(x, w));
  const compile::Graph graph = compile::canonical(p.graph());
  const auto executable =
      std::make_shared<compile::Executable>(graph, compile::fuse(graph), std::move(scheduler));
  Launch<Layer> launch = [executable](const Layer& l, Context& c) {
    const std::array<int64_t, 1> symbols{l.x.extent(0)};
    const std::array<const void*, 5> inputs{l.x.data(), l.w.norm.data(), l.w.up.data(), l.w.up_bias.data(),
                                            l.w.down.data()};
    const std::array<void*, 1> outputs{l.out.data()};
    executable->run(symbols, inputs, outputs, c.pool);
  };
  launch(layer, context);  // schedules are found at the first call
  return launch;
}

compile::TuneCache& tune_cache() {
  static const OwnFolder folder;
  static compile::TuneCache cache(folder.path);
  return cache;
}

}  // namespace fathom::lab::autotune
