#include "program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "experiments/ch14_compiler/mlp_program.h"

namespace fathom::lab::autotune {
namespace {

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
  const compile::Graph graph = mlp_layer::captured();
  Launch<Layer> launch       = mlp_layer::launch_of(
            std::make_shared<compile::Executable>(graph, compile::fuse(graph), std::move(scheduler)));
  launch(layer, context);  // schedules are found at the first call
  return launch;
}

compile::TuneCache& tune_cache() {
  static const OwnFolder folder;
  static compile::TuneCache cache(folder.path);
  return cache;
}

}  // namespace fathom::lab::autotune
