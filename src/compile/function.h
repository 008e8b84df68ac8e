// A program as something to call: captured and compiled at the first call, again where a guard fails.
//
//   Function f("norm", [](Program& p, const std::vector<Tensor>& in) {
//     p.output("y", rms_norm(in[0], in[1], 1e-5));
//   });
//   f.run({x, weight}, {y}, pool);
//
// Each compiled entry is guarded: dtypes, ranks, extents, and whether an input is row-major. An extent is a
// constant of its entry until it has had a second value; then it is a symbol, and one entry serves all values
// from 2 on (0 and 1 have entries of their own). Extents that vary and are equal are one symbol.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compile/piecewise.h"
#include "compile/tensor.h"

namespace fathom::compile {

struct Array {
  DType dtype = DType::fp32;
  void* data  = nullptr;
  std::vector<int64_t> extents;
  std::vector<int64_t> strides = {};  // in elements; empty: row-major

  bool row_major() const;
};

using Trace = std::function<void(Program& program, const std::vector<Tensor>& inputs)>;

// What becomes of a trace that reads a value on the host.
enum class Breaks {
  error,  // GraphBreak, with the place and the cure
  // What was written down is run, and the trace goes on with the value: the rest is another graph. The trace
  // is called at every call, because the host's code may go another way. Graphs are found again by their
  // content.
  segment,
};

struct Options {
  bool fuse          = true;  // false: eager, a launch for each kernel
  bool symbols       = true;  // false: extents stay constants, and every shape is compiled
  bool regions       = true;  // false: a program's regions are compiled as a part of it
  Breaks breaks      = Breaks::error;
  size_t max_entries = 8;  // one more is an error that names the guards
  // Of compiled pieces, which functions may share; none: one of its own. Functions that share it run on one
  // thread at a time.
  std::shared_ptr<CompileCache> cache = {};
};

class Function {
 public:
  struct Entry {
    std::string because;          // the first guard of the entry before it that failed
    std::vector<bool> row_major;  // of each input; others are packed before a run
    std::unique_ptr<Piecewise> executable;
    int64_t hits = 0;
  };
  // A graph of the last call that was cut at breaks.
  struct Segment {
    std::string because;  // the break that ends it; empty: the trace's end
    std::shared_ptr<Executable> executable;
  };

  // Captured anew for each entry.
  Function(std::string name, Trace trace, Options options = {});
  // A graph with symbols of its own: what it does not admit is an error.
  explicit Function(Graph graph, Options options = {});

  // Throws ContractError where no entry can serve the arrays, GraphBreak where the trace breaks. Outputs are
  // row-major and overlap nothing.
  void run(const std::vector<Array>& inputs, const std::vector<Array>& outputs, ThreadPool& pool);

  const std::string& name() const { return name_; }
  const std::vector<Entry>& entries() const { return entries_; }
  int64_t calls() const { return calls_; }
  const CompileCache& cache() const { return *options_.cache; }
  const std::vector<Segment>& segments() const { return segments_; }  // none without Breaks::segment

 private:
  class SegmentedCall;

  std::vector<const void*> row_major(const std::vector<Array>& inputs);
  Entry& entry_for(const std::vector<Array>& inputs, std::vector<int64_t>& symbols);
  static void expect_outputs(const Graph& graph, std::span<const int64_t> symbols,
                             const std::vector<Array>& inputs, const std::vector<Array>& outputs);
  std::vector<Tensor> traced_inputs(Program& program, const std::vector<Array>& inputs,
                                    std::vector<int64_t>& symbol_values) const;
  Graph captured(const std::vector<Array>& inputs) const;
  void run_segments(const std::vector<Array>& inputs, const std::vector<Array>& outputs, ThreadPool& pool);
  Graph specialised(const std::vector<Array>& inputs) const;
  void note_values(const std::vector<Array>& inputs);

  std::string name_;
  Trace trace_;
  Graph graph_;  // where there is no trace
  Options options_;
  std::vector<Entry> entries_;
  size_t last_   = 0;  // the entry of the last call
  int64_t calls_ = 0;
  std::vector<Segment> segments_;
  int64_t compiled_segments_ = 0;
  std::vector<Buffer<std::byte>> packed_;  // of inputs that are not row-major
  // Of each input and axis: the first value, and whether there was another.
  std::vector<std::vector<std::pair<int64_t, bool>>> seen_;
};

// Every break on the trace's way for inputs of these dtypes and extents, as messages with place, cause and
// cure; none: it is one graph. A value that the host reads is taken for 1, so that branches on others are not
// seen.
std::vector<std::string> breaks_of(const std::string& name, const Trace& trace,
                                   const std::vector<Array>& inputs);

// "x.extent(0) == 8", one for each condition of the entry.
std::vector<std::string> guards(const Function::Entry& entry);

}  // namespace fathom::compile
