#include "compile/compile_cache.h"

#include "compile/canonical.h"
#include "compile/piece.h"

namespace fathom::compile {

std::shared_ptr<Executable> CompileCache::compiled(const Graph& graph, bool fused) {
  // As it was written down first: what is found there need not be put into canonical form.
  const std::string how             = fused ? "fused\n" : "eager\n";
  std::shared_ptr<Executable>& seen = known_[how + content_of(graph)];
  if (seen) {
    ++hits_;
    return seen;
  }
  Graph form                        = canonical(graph);
  std::shared_ptr<Executable>& same = known_[how + content_of(form)];
  if (same) {
    ++hits_;
    return seen = same;
  }
  ++compilations_;
  Plan plan   = fused ? fuse(form) : unfused(form);
  same        = std::make_shared<Executable>(std::move(form), std::move(plan), scheduler_);
  return seen = same;
}

}  // namespace fathom::compile
