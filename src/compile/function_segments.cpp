// Function with Breaks::segment: a call is the trace, run piece by piece while it is written down.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "compile/function.h"
#include "compile/interpret.h"
#include "core/expect.h"

namespace fathom::compile {

// One call. A node has memory where it is an input, or where it was alive at the end of its segment.
class Function::SegmentedCall {
 public:
  SegmentedCall(Function& function, ThreadPool& pool)
      : function_(function), pool_(pool), program_(function.name_) {
    function_.segments_.clear();
  }

  void run(const std::vector<Array>& inputs, const std::vector<Array>& outputs) {
    program_.read_breaks_with([this](int node, const std::string& because) { return read(node, because); });
    const std::vector<Tensor> tensors   = function_.traced_inputs(program_, inputs, symbols_);
    const std::vector<const void*> from = function_.row_major(inputs);
    at_.resize(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i)  // only read
      put(tensors[i].node(), const_cast<void*>(from[i]));
    done_ = static_cast<int>(tensors.size());
    function_.trace_(program_, tensors);
    finish(program_.graph(), inputs, outputs);
  }

 private:
  const Graph& graph() const { return program_.capture().graph; }
  bool has_memory(int node) const { return at_[static_cast<size_t>(node)].has_value(); }
  std::byte* at(int node) const { return *at_[static_cast<size_t>(node)]; }
  void put(int node, void* memory) { at_[static_cast<size_t>(node)] = static_cast<std::byte*>(memory); }
  int64_t bytes(int node) const {
    return product(graph()[node].type.shape).value(symbols_) * traits(graph()[node].type.dtype).bits / 8;
  }

  float read(int node, const std::string& because) {
    const Node& read = graph()[node];
    if (read.op == Op::constant)
      return static_cast<float>(typed_pointwise(Op::cast, read.type.dtype, read.attributes.value, 0));
    at_.resize(graph().nodes.size());
    if (!has_memory(node)) {
      std::vector<int> alive;
      for (int id = done_; id < graph().size(); ++id)
        if (id == node || is_output(id) || (program_.capture().lives(id) && graph()[id].op != Op::constant))
          alive.push_back(id);
      for (const int id : alive) {
        memory_.emplace_back(bytes(id));
        put(id, memory_.back().data());
      }
      run_segment(alive, because);
    }
    return read.type.dtype == DType::bf16 ? static_cast<float>(*reinterpret_cast<const bf16*>(at(node)))
                                          : *reinterpret_cast<const float*>(at(node));
  }

  void finish(const Graph& whole, const std::vector<Array>& inputs, const std::vector<Array>& outputs) {
    expect_outputs(whole, symbols_, inputs, outputs);
    at_.resize(whole.nodes.size());
    std::vector<int> wanted;
    for (size_t o = 0; o < outputs.size(); ++o) {
      const int id = whole.outputs[o].node;
      if (has_memory(id)) continue;
      put(id, outputs[o].data);
      wanted.push_back(id);
    }
    std::sort(wanted.begin(), wanted.end());
    if (!wanted.empty()) run_segment(wanted, "");
    for (size_t o = 0; o < outputs.size(); ++o) {
      const std::byte* from = at(whole.outputs[o].node);
      const int64_t size    = bytes(whole.outputs[o].node);
      if (from != outputs[o].data && size > 0) std::memcpy(outputs[o].data, from, static_cast<size_t>(size));
    }
  }

  // The nodes since the last break, of which these are kept.
  void run_segment(const std::vector<int>& outputs, const std::string& because) {
    const Piece piece     = piece_of(graph(), done_, graph().size(), outputs);
    CompileCache& cache   = *function_.options_.cache;
    const int64_t before  = cache.compilations();
    const auto executable = cache.compiled(piece.graph, function_.options_.fuse);
    const int64_t more    = cache.compilations() - before;
    function_.compiled_segments_ += more;
    function_.segments_.push_back({because, executable});
    FATHOM_EXPECT(more == 0 || function_.compiled_segments_ <= kMostSegments, too_many());

    std::vector<int64_t> symbols;
    std::vector<const void*> from;
    std::vector<void*> to;
    for (const int symbol : piece.symbols) symbols.push_back(symbols_[static_cast<size_t>(symbol)]);
    for (const int id : piece.inputs) from.push_back(at(id));
    for (const int id : piece.outputs) to.push_back(at(id));
    executable->run(symbols, from, to, pool_);
    done_ = graph().size();
  }

  std::string too_many() const {
    std::string breaks;
    for (const Segment& segment : function_.segments_)
      if (!segment.because.empty()) breaks += "\n  " + segment.because;
    return fmt::format(
        "{} has compiled {} segments in {} calls. Where a number that item() gave is written into the graph, "
        "each "
        "value is another program: keep it a tensor, or round it to few values. Breaks of this call:{}",
        function_.name_, function_.compiled_segments_, function_.calls_, breaks);
  }

  bool is_output(int node) const {
    return std::any_of(graph().outputs.begin(), graph().outputs.end(),
                       [&](const Output& output) { return output.node == node; });
  }

  static constexpr int64_t kMostSegments = 64;

  Function& function_;
  ThreadPool& pool_;
  Program program_;
  std::vector<int64_t> symbols_;               // values
  std::vector<std::optional<std::byte*>> at_;  // of each node with memory
  std::vector<Buffer<std::byte>> memory_;      // of what lived at breaks
  int done_ = 0;                               // nodes before it have run, or nobody can read them
};

void Function::run_segments(const std::vector<Array>& inputs, const std::vector<Array>& outputs,
                            ThreadPool& pool) {
  note_values(inputs);
  SegmentedCall(*this, pool).run(inputs, outputs);
}

}  // namespace fathom::compile
